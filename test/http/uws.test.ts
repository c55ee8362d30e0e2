import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { NO_BINARY } from '../../src/http/binary.ts';

/** Somebody's repack of a native binary: what it holds on Linux is pinned, byte for byte. */
const SHA256 = {
  'uws_linux_x64_115.node': '6f8d96d761a64beddb060f1f7f0e617dd293ed127ec1d57507aa561a0083171e',
  'uws_linux_x64_127.node': '8cabc918bbf9a07323e54f89a33882491080b2eb35df0607f473ccdb1f3c31af',
  'uws_linux_arm64_115.node': 'c0e29fc143b46b584f3debec7910014ec228198fc1f17aaeacd1de7991bd3769',
  'uws_linux_arm64_127.node': 'd4c4f8b2c28c5f6544b49e36d91b0beee238a5b90a07904a947f77061c8b814d',
};

test('the Linux binaries of uWebSockets.js are the ones that were looked at', () => {
  const package_ = new URL('../../node_modules/uWebSockets.js/', import.meta.url).pathname;
  for (const [name, hash] of Object.entries(SHA256)) {
    const binary = readFileSync(join(package_, 'dist', 'bin', name));
    expect([name, createHash('sha256').update(binary).digest('hex')]).toEqual([name, hash]);
  }
});

test('a Node without a binary is told which to use, or what to install, in one sentence', () => {
  expect(NO_BINARY).toContain(process.versions.node);
  expect(NO_BINARY).toContain('20.20.2 or 22.22.2');
  expect(NO_BINARY).toContain('npm install uWebSockets.js@uNetworking/uWebSockets.js#v20');
  expect(NO_BINARY).not.toContain('\n');
});
