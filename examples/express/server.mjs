// @ts-check
/** An Express application. weir checks each request for /orders, and no other. */

import express from 'express';
import { limit } from './weir.mjs';

const app = express();
// Behind one proxy, Express must take the address of the client from X-Forwarded-For:
// app.set('trust proxy', 1);

// Registered before the limit: probes are never denied.
app.get('/health', (_request, response) => {
  response.send('ok\n');
});

app.use('/orders', limit);
app.get('/orders', (_request, response) => {
  response.json({ orders: [] });
});

const port = Number(process.env.PORT ?? 8080);
app.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}`));
