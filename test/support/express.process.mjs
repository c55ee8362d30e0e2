/**
 * An application in express: what the limit lets through it passes on, as a gateway does; /busy keeps it
 * from all else for a while.
 * @param argv the module that weir has printed, the port to listen on, the port of what is behind
 */

import { request } from 'node:http';
import express from 'express';

const [, , path, port, upstream] = process.argv;
const { limit } = await import(path);

const app = express();
app.use(limit);
app.use((asked, response) => {
  const { method, originalUrl, headers } = asked;
  if (originalUrl === '/busy') keepBusy();
  const call = request({ port: Number(upstream), path: originalUrl, method, headers });
  call.on('response', (answer) => {
    response.status(answer.statusCode).set(answer.headers);
    answer.pipe(response);
  });
  call.on('error', () => response.sendStatus(502));
  asked.pipe(call);
});
app.listen(Number(port), '127.0.0.1');

function keepBusy() {
  const end = performance.now() + 100;
  while (performance.now() < end);
}
