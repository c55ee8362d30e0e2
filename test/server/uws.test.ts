import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import {
  missingBinaryMessage,
  PLATFORM_PACKAGES,
  platformPackage,
} from '../../src/server/binary.ts';
import { removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';
import { BINARY_SHA256 } from '../support/uws-binaries.ts';

const MODULES = new URL('../../node_modules/', import.meta.url).pathname;
const { node } = process.versions;
const nodeError = (code: string, message: string) => Object.assign(new Error(message), { code });

test('the installed Linux binaries of uWebSockets.js are the reviewed ones', () => {
  const installed = Object.entries(BINARY_SHA256).filter(([path]) => existsSync(MODULES + path));
  expect(installed.length).toBeGreaterThan(0);
  for (const [path, hash] of installed) {
    const found = createHash('sha256')
      .update(readFileSync(MODULES + path))
      .digest('hex');
    expect([path, found]).toEqual([path, hash]);
  }
});

test('package.json pins the platform packages that the server loads, and engines allows their Node', () => {
  const { optionalDependencies, engines } = JSON.parse(
    readFileSync(`${MODULES}../package.json`, 'utf8'),
  );
  const expected = Object.entries(PLATFORM_PACKAGES).map(([major, version]) => {
    return [`@uwsjs/linux-x64-${major}`, version];
  });
  expect(optionalDependencies).toEqual(Object.fromEntries(expected));
  const majors = engines.node.match(/(?<=\^)\d+/g);
  expect(majors).toEqual(Object.keys(PLATFORM_PACKAGES));
});

test('the log names the package that was loaded, with its version', async () => {
  const dataDir = temporaryDirectory();
  const server = await startServer(dataDir, { args: ['--counters', '1024'] });
  await server.stop();
  removeDirectory(dataDir);
  const wantsPlatform = process.env.WEIR_TEST_UWS === undefined && platformPackage();
  const version = PLATFORM_PACKAGES[node.split('.')[0]];
  const name = wantsPlatform ? `${wantsPlatform} ${version}` : 'uws-pack 20.0.8';
  expect(server.stderr()).toContain(`"uWebSockets":"${name}"`);
});

test('the error on a Node without a binary says what to install', () => {
  const missing = missingBinaryMessage(nodeError('MODULE_NOT_FOUND', 'Cannot find module'));
  expect(missing).toBe(
    `uWebSockets.js has no binary for Node ${node} on ${process.platform}-${process.arch}: ` +
      `install it by npm install ${platformPackage()}@${PLATFORM_PACKAGES[node.split('.')[0]]}`,
  );
  const old = missingBinaryMessage(
    nodeError('ERR_DLOPEN_FAILED', "version `GLIBC_2.38' not found\nat load"),
  );
  expect(old).toContain("version `GLIBC_2.38' not found): use Node 22.22.2");
  const elsewhere = missingBinaryMessage(undefined);
  for (const sentence of [old, elsewhere]) {
    expect(sentence).toContain('npm install uWebSockets.js@uNetworking/uWebSockets.js#v20');
    expect(sentence).not.toContain('\n');
  }
});
