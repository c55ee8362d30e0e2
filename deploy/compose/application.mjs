/** The application behind nginx: replace it by your own. */

import { createServer } from 'node:http';

const server = createServer((_request, response) => response.end('hello\n'));
server.listen(3000);
process.once('SIGTERM', () => server.close());
