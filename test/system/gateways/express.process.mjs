/**
 * An Express application that forwards the allowed requests to an upstream server. A request to
 * /busy blocks its event loop for 100 ms.
 * @param argv the printed middleware module, the port to listen on, the port of the upstream server
 */

import { request } from 'node:http';
import express from 'express';

const [, , path, port, upstream] = process.argv;
const { limit } = await import(path);

const app = express();
app.use(limit);
app.use((incoming, response) => {
  const { method, originalUrl, headers } = incoming;
  if (originalUrl === '/busy') keepBusy();
  const outgoing = request({ port: Number(upstream), path: originalUrl, method, headers });
  outgoing.on('response', (upstreamResponse) => {
    response.status(upstreamResponse.statusCode).set(upstreamResponse.headers);
    upstreamResponse.pipe(response);
  });
  outgoing.on('error', () => response.sendStatus(502));
  incoming.pipe(outgoing);
});
app.listen(Number(port), '127.0.0.1');

function keepBusy() {
  const end = performance.now() + 100;
  while (performance.now() < end);
}
