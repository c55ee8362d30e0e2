/**
 * The HTTP tests on Node 24. Its build of uWebSockets.js needs a newer glibc than Debian 12 has, so
 * they run in a root file system of Debian 13. It requires root and mmdebstrap.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { copyWorkingTree, fetchNode } from '../support/programs/npm.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const NODE = '24.14.1';
const MINUTE = 60_000;
/** Debian packages that the tests use besides Node. */
const PACKAGES = ['ca-certificates', 'curl', 'libatomic1', 'libstdc++6', 'openssl', 'util-linux'];

interface Report {
  numPassedTests: number;
  testResults: {
    message: string;
    assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
  }[];
}

const canMakeRoot = process.getuid?.() === 0 && spawnSync('mmdebstrap', ['--version']).status === 0;

describe('in a root of Debian 13', () => {
  const directory = temporaryDirectory();
  const root = join(directory, 'root');
  const copy = join(root, 'weir');

  beforeAll(() => {
    if (!canMakeRoot) throw new Error('this test requires root and the Debian package mmdebstrap');
    const include = `--include=${PACKAGES.join()}`;
    execFileSync('mmdebstrap', ['--quiet', '--variant=minbase', include, 'trixie', root]);
    const node = fetchNode(NODE);
    copyFileSync(node, join(root, 'usr/local/bin/node'));
    copyWorkingTree(copy);
    const env = { ...process.env, PATH: `${dirname(node)}:${process.env.PATH}` };
    for (const args of [
      ['ci', '--no-audit', '--no-fund'],
      ['run', 'build'],
      ['run', 'build:threads'],
    ]) {
      execFileSync('npm', args, { cwd: copy, env, stdio: 'pipe' });
    }
  }, 10 * MINUTE);
  afterAll(() => removeDirectory(directory));

  test('all HTTP tests pass on the package for Node 24', { timeout: 20 * MINUTE }, () => {
    // The mounts belong to a new namespace, and end with it.
    const script = [
      `mount --bind /proc ${root}/proc && mount --bind /dev ${root}/dev && exec chroot ${root}`,
      'sh -c "cd /weir && node node_modules/vitest/vitest.mjs run --config test/vitest.config.ts',
      '--project tests --reporter=json --outputFile=/result.json test/server"',
    ];
    const { HOME, PATH, LANG } = process.env;
    const env = { HOME, PATH: `/usr/local/bin:${PATH}`, LANG };
    const args = ['--mount', 'sh', '-c', script.join(' ')];
    const { status, stderr } = spawnSync('unshare', args, { env, encoding: 'utf8' });
    const report: Report = JSON.parse(readFileSync(join(root, 'result.json'), 'utf8'));
    const failed = report.testResults.flatMap(({ message, assertionResults }) => [
      ...(message === '' ? [] : [message]),
      ...assertionResults.flatMap(({ status, fullName, failureMessages }) => {
        return status === 'failed' ? [`${fullName}\n${failureMessages.join().slice(0, 500)}`] : [];
      }),
    ]);
    expect(failed.join('\n'), stderr).toBe('');
    expect(status).toBe(0);
    expect(report.numPassedTests).toBeGreaterThan(100);
  });
});
