/** The limits of control groups, read from trees of files like those of real machines. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { cpuLimit } from '../../src/config/cores.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

let serial = 0;
/** @param files of `/sys/fs/cgroup`, by path */
const limitOf = (cgroup: string, files: Record<string, string>): number => {
  const root = join(directory, String(serial++));
  const all = { 'proc/self/cgroup': cgroup };
  for (const [path, text] of Object.entries(files)) {
    Object.assign(all, { [`sys/fs/cgroup/${path}`]: text });
  }
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return cpuLimit(root);
};

const NONE = Number.POSITIVE_INFINITY;
const quotaFiles = (group: string, us: number, period = 100_000) => ({
  [`${group}/cpu.cfs_quota_us`]: `${us}\n`,
  [`${group}/cpu.cfs_period_us`]: `${period}\n`,
});

describe('the cores that a control group allows', () => {
  const cases: [string, string, Record<string, string>, number][] = [
    [
      'v2, a container with a namespace of its own',
      '0::/\n',
      { 'cpu.max': '150000 100000\n' },
      1.5,
    ],
    [
      'v2, a service, limited itself',
      '0::/system.slice/weir.service\n',
      { 'system.slice/weir.service/cpu.max': '50000 100000\n' },
      0.5,
    ],
    [
      'v2, limited by a group around it more than by its own',
      '0::/kubepods/pod1/c1\n',
      {
        'kubepods/cpu.max': 'max 100000\n',
        'kubepods/pod1/cpu.max': '200000 100000\n',
        'kubepods/pod1/c1/cpu.max': '400000 100000\n',
      },
      2,
    ],
    ['v2, without a limit', '0::/a\n', { 'a/cpu.max': 'max 100000\n' }, NONE],
    [
      "v2, whose path is the host's, where the mount begins with the group",
      '0::/docker/0123456789ab\n',
      { 'cpu.max': '100000 100000\n' },
      1,
    ],
    ['v2, seen from a namespace beside it', '0::/../b\n', { 'b/cpu.max': '300000 100000\n' }, 3],
    ['v2, with a colon in its name', '0::/a:b c\n', { 'a:b c/cpu.max': '10000 20000\n' }, 0.5],
    [
      'v1, a group',
      '12:memory:/m\n4:cpu,cpuacct:/a/b\n',
      quotaFiles('cpu,cpuacct/a/b', 150_000),
      1.5,
    ],
    ['v1, another period', '4:cpu:/a\n', quotaFiles('cpu/a', 25_000, 10_000), 2.5],
    ['v1, by the short name', '4:cpu,cpuacct:/a\n', quotaFiles('cpu/a', 100_000), 1],
    [
      'v1, the group around it',
      '4:cpu:/a/b\n',
      { ...quotaFiles('cpu/a', 300_000), ...quotaFiles('cpu/a/b', -1) },
      3,
    ],
    [
      "v1, whose path is the host's",
      '4:cpu:/docker/01\n0::/docker/01\n',
      quotaFiles('cpu', 200_000),
      2,
    ],
    ['v1, without a limit', '4:cpu:/\n0::/\n', quotaFiles('cpu', -1), NONE],
    ['v1, of another controller', '4:cpuset:/a\n', quotaFiles('cpu/a', 100_000), NONE],
    ['neither', '', {}, NONE],
    ['nothing but the text of the path', '0::/a\n', {}, NONE],
  ];
  test.each(cases)('%s', (_what, cgroup, files, cores) => {
    expect(limitOf(cgroup, files)).toBe(cores);
  });

  test.each(['', '\n', 'max', '100000', '0 100000', '-1 100000', '100000 0', '1e5 1e5', 'x y'])(
    'are not limited by a file that holds %j',
    (text) => {
      expect(limitOf('0::/a\n', { 'a/cpu.max': text })).toBe(NONE);
    },
  );

  test('are not limited where a directory stands for a file, nor where there is no /proc', () => {
    expect(limitOf('0::/a\n', { 'a/cpu.max/x': '' })).toBe(NONE);
    expect(limitOf('no such format\n\u0000', {})).toBe(NONE);
    expect(cpuLimit(join(directory, 'nowhere'))).toBe(NONE);
  });
});
