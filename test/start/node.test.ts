import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { isSupported, unsupported } from '../../src/start/node.mjs';
import { CLI_PATH } from '../support/server.ts';

const ROOT = new URL('../..', import.meta.url);
const { engines } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));

describe('a version of Node', () => {
  const supported = [
    ...['20.20.2', '20.21.0', '22.22.2', '22.100.0', '24.14.1', '24.15.0', '26.0.0'],
    '26.1.2-nightly20260101abcdef',
  ];
  const others = [
    ...['16.0.0', '18.20.8', '20.2.3', '20.19.9', '20.20.1', '21.99.99', '22.10.0', '22.22.1'],
    ...['23.0.0', '24.14.0', '25.9.0', '27.0.0', '2.26.0'],
  ];
  test.each([...supported, ...others])('%s is supported or not', (version) => {
    expect(isSupported(version, engines.node)).toBe(supported.includes(version));
  });

  test('that is not supported is answered with the supported and the recommended ones', () => {
    expect(unsupported('16.20.2', '^20.20.2 || ^22.22.2 || ^26')).toBe(
      'this is Node 16.20.2, and weir needs Node 20.20.2, 22.22.2 or 26.0.0, or a later release' +
        ' of one of these major versions; Node 22 is recommended',
    );
  });

  test('is never compared with a range of another form', () => {
    for (const range of ['>=20', '20.x', '^20.20.2 ^22', '', '^20.20.2 || ~22']) {
      expect(() => isSupported('19.0.0', range)).toThrow(
        `"engines" must be of the form ^20.20.2 || ^26; got ${range}`,
      );
    }
  });
});

test('the command rejects a Node version that is not supported before it imports anything', () => {
  const built = readFileSync(CLI_PATH, 'utf8');
  // The chunk of package.json is data, which every Node can read.
  const imports = [...built.matchAll(/^import\b.*/gm)].map(([line]) => line);
  expect(imports).toEqual([expect.stringMatching(/ from "\.\/package-\w+\.js";$/)]);
  // This makes the command see another version of Node.
  const olderVersion = `data:text/javascript,Object.defineProperty(process.versions,'node',{value:'22.10.0'})`;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['--import', olderVersion, CLI_PATH, '--help'],
    { encoding: 'utf8' },
  );
  expect([status, stdout]).toEqual([5, '']);
  expect(stderr).toMatch(/^weir: this is Node 22\.10\.0, and weir needs Node .*\n$/);
});
