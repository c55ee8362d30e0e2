/**
 * An attacker of the admin port: holds connections open, and opens a new one for each that is
 * closed. Arguments: the port, the number of connections, and a JSON array of the texts to send,
 * used in turn. Prints a line when all connections have been opened. Ends when its standard input
 * ends.
 */

import { connect } from 'node:net';

const [port, count, texts] = process.argv.slice(2);
const sent = JSON.parse(texts);
let opened = 0;

function hold(number) {
  const socket = connect(Number(port), '127.0.0.1');
  socket.on('connect', () => {
    socket.write(sent[number % sent.length]);
    if (++opened === Number(count)) process.stdout.write('holding\n');
  });
  // The attacker does not read responses.
  socket.on('error', () => {});
  socket.on('close', () => setTimeout(() => hold(number), 1));
}

for (let number = 0; number < Number(count); number++) hold(number);
process.stdin.resume().on('end', () => process.exit());
