/** A Redis whose clock a test steps. It needs a C compiler. */

import { spawnSync } from 'node:child_process';
import { chmodSync, closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { type RedisServer, startRedis } from '../../support/programs/redis.ts';
import { removeDirectory, temporaryDirectory } from '../../support/server.ts';

const SOURCE = new URL('./stepped-clock.c', import.meta.url).pathname;
const COMPILER = 'cc';

export const isCompilerMissing = spawnSync(COMPILER, ['--version']).error !== undefined;

export interface SteppedRedis extends RedisServer {
  /** @param ms how much its clock is ahead of that of the system from now on */
  setClock: (ms: number) => void;
}

export async function startSteppedRedis(): Promise<SteppedRedis> {
  const directory = temporaryDirectory();
  const [library, offset, program] = ['clock.so', 'offset', 'redis-server'].map((name) => {
    return join(directory, name);
  });
  const { status, stderr } = spawnSync(COMPILER, ['-shared', '-fPIC', '-o', library, SOURCE]);
  if (status !== 0) throw new Error(`${COMPILER}: ${stderr}`);
  writeFileSync(offset, Buffer.alloc(8));
  const variables = `LD_PRELOAD=${library} CLOCK_OFFSET_FILE=${offset}`;
  writeFileSync(program, `#!/bin/sh\nexec env ${variables} redis-server "$@"\n`);
  chmodSync(program, 0o755);
  const redis = await startRedis({ program: { name: 'Redis', path: program } });
  return {
    ...redis,
    setClock: (ms) => {
      const bytes = Buffer.alloc(8);
      bytes.writeBigInt64LE(BigInt(Math.round(1_000 * ms)));
      const file = openSync(offset, 'r+');
      writeSync(file, bytes, 0, bytes.length, 0);
      closeSync(file);
    },
    close: async () => {
      await redis.close();
      removeDirectory(directory);
    },
  };
}
