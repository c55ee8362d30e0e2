/**
 * An application in fastify: what the limit lets through it passes on, as a gateway does; /busy keeps it
 * from all else for a while.
 * @param argv the module that weir has printed, the port to listen on, the port of what is behind
 */

import { request } from 'node:http';
import Fastify from 'fastify';

const [, , path, port, upstream] = process.argv;
const { limit } = await import(path);

const app = Fastify();
app.addHook('onRequest', limit);
// Bodies are passed on as they come.
app.removeAllContentTypeParsers();
app.addContentTypeParser('*', (_request, _body, done) => done());
app.all('*', (asked, reply) => {
  const { method, originalUrl, headers } = asked;
  if (originalUrl === '/busy') keepBusy();
  const call = request({ port: Number(upstream), path: originalUrl, method, headers });
  call.on('response', (answer) => {
    reply.code(answer.statusCode).headers(answer.headers).send(answer);
  });
  call.on('error', () => reply.code(502).send());
  asked.raw.pipe(call);
});
await app.listen({ port: Number(port), host: '127.0.0.1' });

function keepBusy() {
  const end = performance.now() + 100;
  while (performance.now() < end);
}
