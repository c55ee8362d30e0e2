/**
 * Runs in its own network namespace, where connections have small buffers. Starts a server with the
 * given arguments. Some clients request a large response each, and begin to read it after a delay.
 * Prints what each client received.
 */

import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';

const [main, port, adminPort, dataDir, key, waits, ...tls] = process.argv.slice(2);
for (const name of ['tcp_wmem', 'tcp_rmem']) {
  writeFileSync(`/proc/sys/net/ipv4/${name}`, '4096 16384 65536');
}
const args = ['--port', port, '--admin-port', adminPort, '--data-dir', dataDir, ...tls];
const server = spawn(process.execPath, [main, ...args, '--counters', '1024'], {
  env: { PATH: process.env.PATH, WEIR_ROOT_KEY: key },
  stdio: ['ignore', 'pipe', 'inherit'],
});
process.once('exit', () => server.kill('SIGKILL'));
await new Promise((resolve) => server.stdout.once('data', resolve));

const checks = Array.from({ length: 100 }, (_, i) => {
  return {
    namespace: 'n',
    identifier: `${'\u0001'.repeat(500)}${i}`,
    limit: 1_000,
    duration: 60_000,
  };
});
const body = JSON.stringify(checks);
const request = (connection) => {
  return [
    'POST /v2/ratelimit.multiLimit HTTP/1.1',
    'Host: a',
    `Authorization: Bearer ${key}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    `Connection: ${connection}`,
    '',
    body,
  ].join('\r\n');
};

/** Resolves with the response body when it is complete or the connection ends. */
function requestLimits(waitMs, connection) {
  const at = { host: '127.0.0.1', port: Number(port), rejectUnauthorized: false };
  const socket = tls.length > 0 ? connectTls(at) : connect(at);
  return new Promise((resolve) => {
    let text = '';
    const end = () => {
      socket.destroy();
      resolve(text.slice(text.indexOf('\r\n\r\n') + 4));
    };
    socket.once(tls.length > 0 ? 'secureConnect' : 'connect', () => {
      socket.write(request(connection));
      socket.pause();
      setTimeout(() => socket.resume(), waitMs);
    });
    socket.setEncoding('latin1');
    socket.on('error', end);
    socket.on('close', end);
    socket.on('data', (data) => {
      text += data;
      const bodyAt = text.indexOf('\r\n\r\n') + 4;
      const length = /content-length: (\d+)/i.exec(text)?.[1];
      if (bodyAt > 3 && text.length >= bodyAt + Number(length)) end();
    });
  });
}

/** The number of checks in a response; 0 if the response is incomplete. */
function limitsOf(text) {
  try {
    return JSON.parse(text).data.limits.length;
  } catch {
    return 0;
  }
}

const bodies = await Promise.all(
  ['keep-alive', 'close'].flatMap((connection) => {
    return waits.split(',').map((waitMs) => requestLimits(Number(waitMs), connection));
  }),
);
server.kill('SIGTERM');
const code = await new Promise((resolve) => server.once('exit', resolve));
console.log(JSON.stringify({ code, limits: bodies.map(limitsOf) }));
