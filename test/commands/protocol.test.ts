/** Commands whose URL has http:// for a server with TLS, or https:// for one without. */

import { createServer } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { afterAll, expect, test } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { CERTIFICATE_A, tlsEnvironment, writeCertificate } from '../support/certificates.ts';
import { listen } from '../support/http.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';
import { useServer } from '../support/test-server.ts';
import { callWeir } from '../support/weir-command.ts';

const place = temporaryDirectory();
afterAll(() => removeDirectory(place));
const plain = useServer();
const secure = useServer({ env: tlsEnvironment(writeCertificate(place, CERTIFICATE_A)) });

async function errorOutput(url: string): Promise<string> {
  const { code, stdout, stderr } = await callWeir(url, ['keys', 'list']);
  expect([code, stdout]).toEqual([EXIT.NO_ANSWER, '']);
  expect(stderr).not.toContain('SSL routines');
  const prefix = `weir: no response from ${url} (WEIR_URL): `;
  expect(stderr.slice(0, prefix.length)).toBe(prefix);
  return stderr.slice(prefix.length).trimEnd();
}

test('the error for https:// to a server without TLS suggests http://', async () => {
  const sentence = 'the server does not use TLS: use http:// in the URL?';
  expect(await errorOutput(`https://127.0.0.1:${plain.port}`)).toBe(sentence);
});

test('the error for http:// to a server with TLS suggests https://', async () => {
  const sentence = 'the server closed the connection: if it uses TLS, use https:// in the URL';
  expect(await errorOutput(`http://127.0.0.1:${secure.port}`)).toBe(sentence);
});

test('the error for http:// to a server of another protocol suggests https://', async () => {
  const other = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', () => socket.end('\x15\x03\x01\x00\x02\x02\x46'));
  });
  const port = await listen(other);
  const sentence = 'the response is not HTTP: if the server uses TLS, use https:// in the URL';
  expect(await errorOutput(`http://127.0.0.1:${port}`)).toBe(sentence);
  other.close();
});

test('the error for a failed TLS handshake does not suggest a server without TLS', async () => {
  // The certificate has an elliptic curve, and the cipher needs RSA.
  const ciphers = 'ECDHE-RSA-AES128-GCM-SHA256';
  const settings = { ciphers, maxVersion: 'TLSv1.2' } as const;
  const other = createTlsServer({ key: CERTIFICATE_A.key, cert: CERTIFICATE_A.cert, ...settings });
  other.on('tlsClientError', () => {});
  const port = await listen(other);
  const url = `https://127.0.0.1:${port}`;
  expect(await errorOutput(url)).toMatch(/^the TLS handshake failed: .*alert handshake failure$/);
  other.close();
});
