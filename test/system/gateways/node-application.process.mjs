/**
 * An application of Express or Fastify that forwards the allowed requests to an upstream server. A
 * request to /busy blocks its event loop for 100 ms.
 * @param argv the framework, the printed middleware module, the port to listen on, the port of the
 *   upstream server
 */

import { request } from 'node:http';

const [, , framework, path, port, upstream] = process.argv;
const { limit } = await import(path);

/** @param respond gets the status, the headers and the stream of the body */
function forward({ method, originalUrl, headers }, body, respond) {
  const end = performance.now() + (originalUrl === '/busy' ? 100 : 0);
  while (performance.now() < end);
  const outgoing = request({ port: Number(upstream), path: originalUrl, method, headers });
  outgoing.on('response', (response) => respond(response.statusCode, response.headers, response));
  outgoing.on('error', () => respond(502, {}, undefined));
  body.pipe(outgoing);
}

if (framework === 'express') {
  const { default: express } = await import('express');
  const app = express();
  app.use(limit);
  app.use((incoming, response) => {
    forward(incoming, incoming, (status, headers, body) => {
      response.status(status).set(headers);
      if (body === undefined) response.end();
      else body.pipe(response);
    });
  });
  app.listen(Number(port), '127.0.0.1');
} else {
  const { default: Fastify } = await import('fastify');
  const app = Fastify();
  app.addHook('onRequest', limit);
  // Bodies are forwarded unparsed.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _body, done) => done());
  app.all('*', (incoming, reply) => {
    forward(incoming, incoming.raw, (status, headers, body) => {
      reply.code(status).headers(headers).send(body);
    });
  });
  await app.listen({ port: Number(port), host: '127.0.0.1' });
}
