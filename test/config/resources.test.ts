/** The limits of control groups, read from trees of files like those of real machines. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { cpuLimit, memoryLimit } from '../../src/config/resources.ts';
import { removeDirectory, temporaryDirectory } from '../support/server.ts';

const directory = temporaryDirectory();
afterAll(() => removeDirectory(directory));

let serial = 0;
/**
 * @param cgroup the text of `/proc/self/cgroup`
 * @param files of `/sys/fs/cgroup`, by path
 * @returns the root of the tree
 */
function writeTree(cgroup: string, files: Record<string, string>): string {
  const root = join(directory, String(serial++));
  const all: Record<string, string> = { 'proc/self/cgroup': cgroup };
  for (const [path, text] of Object.entries(files)) all[`sys/fs/cgroup/${path}`] = text;
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const coresOf = (cgroup: string, files: Record<string, string>) => {
  return cpuLimit(writeTree(cgroup, files));
};

const NONE = Number.POSITIVE_INFINITY;
const quotaFiles = (group: string, us: number, period = 100_000) => ({
  [`${group}/cpu.cfs_quota_us`]: `${us}\n`,
  [`${group}/cpu.cfs_period_us`]: `${period}\n`,
});

describe('the CPU limit', () => {
  const cases: [string, string, Record<string, string>, number][] = [
    ['v2, a container with its own namespace', '0::/\n', { 'cpu.max': '150000 100000\n' }, 1.5],
    [
      'v2, a limited service',
      '0::/system.slice/weir.service\n',
      { 'system.slice/weir.service/cpu.max': '50000 100000\n' },
      0.5,
    ],
    [
      'v2, with a lower limit of a surrounding group',
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
      'v2, with the path of the host, and a mount that begins with the group',
      '0::/docker/0123456789ab\n',
      { 'cpu.max': '100000 100000\n' },
      1,
    ],
    ['v2, in another namespace', '0::/../b\n', { 'b/cpu.max': '300000 100000\n' }, 3],
    ['v2, with a colon in the name', '0::/a:b c\n', { 'a:b c/cpu.max': '10000 20000\n' }, 0.5],
    [
      'v1, a group',
      '12:memory:/m\n4:cpu,cpuacct:/a/b\n',
      quotaFiles('cpu,cpuacct/a/b', 150_000),
      1.5,
    ],
    ['v1, with another period', '4:cpu:/a\n', quotaFiles('cpu/a', 25_000, 10_000), 2.5],
    [
      'v1, mounted under the name of one controller',
      '4:cpu,cpuacct:/a\n',
      quotaFiles('cpu/a', 100_000),
      1,
    ],
    [
      'v1, a surrounding group',
      '4:cpu:/a/b\n',
      { ...quotaFiles('cpu/a', 300_000), ...quotaFiles('cpu/a/b', -1) },
      3,
    ],
    [
      'v1, with the path of the host',
      '4:cpu:/docker/01\n0::/docker/01\n',
      quotaFiles('cpu', 200_000),
      2,
    ],
    ['v1, without a limit', '4:cpu:/\n0::/\n', quotaFiles('cpu', -1), NONE],
    ['v1, of another controller', '4:cpuset:/a\n', quotaFiles('cpu/a', 100_000), NONE],
    ['no control group', '', {}, NONE],
    ['a path without files', '0::/a\n', {}, NONE],
  ];
  test.each(cases)('%s', (_case, cgroup, files, cores) => {
    expect(coresOf(cgroup, files)).toBe(cores);
  });

  test.each(['', '\n', 'max', '100000', '0 100000', '-1 100000', '100000 0', '1e5 1e5', 'x y'])(
    'is not set by the text %j',
    (text) => {
      expect(coresOf('0::/a\n', { 'a/cpu.max': text })).toBe(NONE);
    },
  );

  test('is not set by a directory in place of a file, nor without /proc', () => {
    expect(coresOf('0::/a\n', { 'a/cpu.max/x': '' })).toBe(NONE);
    expect(coresOf('no such format\n\u0000', {})).toBe(NONE);
    expect(cpuLimit(join(directory, 'nowhere'))).toBe(NONE);
  });
});

const MIB = 2 ** 20;
const MACHINE = 16 * 1_024 * MIB;
const OF_MACHINE = 'the memory of this machine';

/** @returns the limit in MiB, and its source relative to `/sys/fs/cgroup` */
const memoryOf = (cgroup: string, files: Record<string, string>): [number, string] => {
  const root = writeTree(cgroup, files);
  const { bytes, source } = memoryLimit(root, MACHINE);
  return [bytes / MIB, source.replace(join(root, 'sys/fs/cgroup/'), '')];
};

const UNLIMITED = '9223372036854771712\n';
const bytes = (mib: number) => `${mib * MIB}\n`;

describe('the memory limit', () => {
  const cases: [string, string, Record<string, string>, [number, string]][] = [
    ['v2, a container', '0::/\n', { 'memory.max': bytes(128) }, [128, 'memory.max']],
    [
      'v2, a lower limit of a surrounding group',
      '0::/kubepods/pod1/c1\n',
      {
        'kubepods/memory.max': 'max\n',
        'kubepods/pod1/memory.max': bytes(256),
        'kubepods/pod1/c1/memory.max': bytes(512),
      },
      [256, 'kubepods/pod1/memory.max'],
    ],
    ['v2, without a limit', '0::/a\n', { 'a/memory.max': 'max\n' }, [16_384, OF_MACHINE]],
    [
      'v1, a group',
      '12:cpu:/m\n4:memory:/a/b\n',
      { 'memory/a/b/memory.limit_in_bytes': bytes(64) },
      [64, 'memory/a/b/memory.limit_in_bytes'],
    ],
    [
      'v1, a surrounding group',
      '4:memory:/a/b\n',
      {
        'memory/memory.limit_in_bytes': UNLIMITED,
        'memory/a/memory.limit_in_bytes': bytes(300),
        'memory/a/b/memory.limit_in_bytes': UNLIMITED,
      },
      [300, 'memory/a/memory.limit_in_bytes'],
    ],
    [
      'v1, with the path of the host',
      '4:memory:/docker/01\n0::/docker/01\n',
      { 'memory/memory.limit_in_bytes': bytes(200) },
      [200, 'memory/memory.limit_in_bytes'],
    ],
    [
      'v1, without a limit',
      '4:memory:/\n',
      { 'memory/memory.limit_in_bytes': UNLIMITED },
      [16_384, OF_MACHINE],
    ],
    [
      'v1, of another controller',
      '4:cpu:/a\n',
      { 'memory/a/memory.limit_in_bytes': bytes(64) },
      [16_384, OF_MACHINE],
    ],
    [
      'a limit larger than the machine',
      '0::/\n',
      { 'memory.max': bytes(32_768) },
      [16_384, OF_MACHINE],
    ],
    ['no control group', '', {}, [16_384, OF_MACHINE]],
  ];
  test.each(cases)('%s', (_case, cgroup, files, limit) => {
    expect(memoryOf(cgroup, files)).toEqual(limit);
  });

  test.each(['', '\n', 'max', '0', '-1', '1e9', '1 2', 'x'])(
    'is not set by the text %j',
    (text) => {
      expect(memoryOf('0::/a\n', { 'a/memory.max': text })).toEqual([16_384, OF_MACHINE]);
    },
  );
});
