// @ts-check
/** A server that sends a check to weir before it handles a request. */

import { createServer } from 'node:http';
import { checkLimit } from './limiter.mjs';

const port = Number(process.env.PORT ?? 8080);

const server = createServer(async (request, response) => {
  const { allowed, headers } = await checkLimit(request.socket.remoteAddress ?? 'disconnected');
  response.setHeaders(new Headers(headers));
  if (!allowed) response.statusCode = 429;
  response.end(allowed ? 'results\n' : 'too many requests\n');
});
server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`));
