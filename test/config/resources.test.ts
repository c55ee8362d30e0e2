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

const NONE = Number.POSITIVE_INFINITY;
const quotaFiles = (group: string, us: number, period = 100_000) => ({
  [`${group}/cpu.cfs_quota_us`]: `${us}\n`,
  [`${group}/cpu.cfs_period_us`]: `${period}\n`,
});
/** Of version 2, by the directory of each group: a limit, or `max`. */
const files = (name: string, groups: Record<string, string>) => {
  return Object.fromEntries(
    Object.entries(groups).map(([group, text]) => [join(group, name), `${text}\n`]),
  );
};
const cpuFiles = (groups: Record<string, string>) => files('cpu.max', groups);

describe('the CPU limit', () => {
  const PODS = { k: 'max 100000', 'k/pod': '200000 100000', 'k/pod/c': '400000 100000' };
  const OUTER = { ...quotaFiles('cpu/a', 300_000), ...quotaFiles('cpu/a/b', -1) };
  test.each<[name: string, cgroup: string, files: Record<string, string>, cores: number]>([
    ['v2, a namespace of its own', '0::/\n', cpuFiles({ '.': '150000 100000' }), 1.5],
    ['v2, a service', '0::/s/weir\n', cpuFiles({ 's/weir': '50000 100000' }), 0.5],
    ['v2, with a lower limit of a surrounding group', '0::/k/pod/c\n', cpuFiles(PODS), 2],
    ['v2, without a limit', '0::/a\n', cpuFiles({ a: 'max 100000' }), NONE],
    ['v2, with the path of the host', '0::/docker/01\n', cpuFiles({ '.': '100000 100000' }), 1],
    ['v2, in another namespace', '0::/../b\n', cpuFiles({ b: '300000 100000' }), 3],
    ['v2, with a colon in the name', '0::/a:b c\n', cpuFiles({ 'a:b c': '10000 20000' }), 0.5],
    ['v2, beside v1', '4:cpuset:/b\n0::/a\n', cpuFiles({ 'unified/a': '50000 100000' }), 0.5],
    ['v1', '12:memory:/m\n4:cpu,cpuacct:/a/b\n', quotaFiles('cpu,cpuacct/a/b', 150_000), 1.5],
    ['v1, with another period', '4:cpu:/a\n', quotaFiles('cpu/a', 25_000, 10_000), 2.5],
    ['v1, mounted under one name', '4:cpu,cpuacct:/a\n', quotaFiles('cpu/a', 100_000), 1],
    ['v1, a surrounding group', '4:cpu:/a/b\n', OUTER, 3],
    ['v1, with the path of the host', '4:cpu:/d/01\n0::/d/01\n', quotaFiles('cpu', 200_000), 2],
    ['v1, without a limit', '4:cpu:/\n0::/\n', quotaFiles('cpu', -1), NONE],
    ['v1, of another controller', '4:cpuset:/a\n', quotaFiles('cpu/a', 100_000), NONE],
    ['no control group', '', {}, NONE],
    ['another format', 'no such format\n\u0000', {}, NONE],
    ['a path without files', '0::/a\n', {}, NONE],
    ['a directory in place of a file', '0::/a\n', { 'a/cpu.max/x': '' }, NONE],
    ...['', '\n', 'max', '100000', '0 100000', '-1 100000', '100000 0', '1e5 1e5', 'x y'].map(
      (text): [string, string, Record<string, string>, number] => {
        return [`the text ${JSON.stringify(text)}`, '0::/a\n', cpuFiles({ a: text }), NONE];
      },
    ),
  ])('%s', (_case, cgroup, files, cores) => {
    expect(cpuLimit(writeTree(cgroup, files))).toBe(cores);
  });

  test('is not set without /proc', () => {
    expect(cpuLimit(join(directory, 'nowhere'))).toBe(NONE);
  });
});

/** The limits of memory are found as those of the CPU. */
describe('the memory limit', () => {
  const MIB = 2 ** 20;
  const MACHINE_MIB = 16_384;
  const OF_MACHINE = 'the memory of this machine';
  const bytes = (mib: number) => `${mib * MIB}`;
  const v1 = (groups: Record<string, string>) => files('memory.limit_in_bytes', groups);
  const v2 = (groups: Record<string, string>) => files('memory.max', groups);
  const OUTER = { memory: '9223372036854771712', 'memory/a': bytes(300) };

  test.each<[name: string, cgroup: string, files: Record<string, string>, limit: object]>([
    ['v2', '0::/a\n', v2({ a: bytes(128), '.': 'max' }), [128, 'a/memory.max']],
    ['v1', '4:memory:/a/b\n', v1(OUTER), [300, 'memory/a/memory.limit_in_bytes']],
    ['v1, without a limit', '4:memory:/\n', v1({ memory: OUTER.memory }), [16_384, OF_MACHINE]],
    ['v1, of another controller', '4:cpu:/a\n', v1(OUTER), [16_384, OF_MACHINE]],
    ['a limit above the machine', '0::/\n', v2({ '.': bytes(32_768) }), [16_384, OF_MACHINE]],
    ['no control group', '', {}, [16_384, OF_MACHINE]],
    ...['', '\n', 'max', '0', '-1', '1e9', '1 2', 'x'].map(
      (text): [string, string, Record<string, string>, object] => {
        return [
          `the text ${JSON.stringify(text)}`,
          '0::/a\n',
          v2({ a: text }),
          [16_384, OF_MACHINE],
        ];
      },
    ),
  ])('%s', (_case, cgroup, files, limit) => {
    const root = writeTree(cgroup, files);
    const { bytes, source } = memoryLimit(root, MACHINE_MIB * MIB);
    expect([bytes / MIB, source.replace(join(root, 'sys/fs/cgroup/'), '')]).toEqual(limit);
  });
});
