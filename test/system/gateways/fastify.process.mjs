/**
 * A Fastify application that forwards the allowed requests to an upstream server. A request to
 * /busy blocks its event loop for 100 ms.
 * @param argv the printed middleware module, the port to listen on, the port of the upstream server
 */

import { request } from 'node:http';
import Fastify from 'fastify';

const [, , path, port, upstream] = process.argv;
const { limit } = await import(path);

const app = Fastify();
app.addHook('onRequest', limit);
// Bodies are forwarded unparsed.
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', (_request, _body, done) => done());
app.all('*', (incoming, reply) => {
  const { method, originalUrl, headers } = incoming;
  if (originalUrl === '/busy') keepBusy();
  const outgoing = request({ port: Number(upstream), path: originalUrl, method, headers });
  outgoing.on('response', (upstreamResponse) => {
    reply
      .code(upstreamResponse.statusCode)
      .headers(upstreamResponse.headers)
      .send(upstreamResponse);
  });
  outgoing.on('error', () => reply.code(502).send());
  incoming.raw.pipe(outgoing);
});
await app.listen({ port: Number(port), host: '127.0.0.1' });

function keepBusy() {
  const end = performance.now() + 100;
  while (performance.now() < end);
}
