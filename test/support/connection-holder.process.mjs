/**
 * An attacker of the admin port: holds connections open, and opens a new one for each that is
 * closed. Arguments: the port, how many connections, what each sends (a JSON array, used in turn).
 * Prints a line when all have been open. Ends with its standard input.
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
  // What is answered is not read.
  socket.on('error', () => {});
  socket.on('close', () => setTimeout(() => hold(number), 1));
}

for (let number = 0; number < Number(count); number++) hold(number);
process.stdin.resume().on('end', () => process.exit());
