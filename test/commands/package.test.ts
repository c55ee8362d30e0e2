/** The package that `npm pack` makes, installed in another directory. */

import { execFile, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { ROOT_KEY, removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';

describe('npm pack', () => {
  const run = (command: string, args: string[], cwd: string) => {
    return new Promise<string>((resolve, reject) => {
      const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
      let output = '';
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (data) => {
          output += data;
        });
      }
      child.on('close', (code) => {
        if (code === 0) resolve(output);
        else reject(new Error(`${command} ${args.join(' ')}: ${code}\n${output}`));
      });
    });
  };

  test('creates a package whose command runs in another directory', async () => {
    const root = new URL('../..', import.meta.url).pathname;
    const elsewhere = temporaryDirectory();
    await run('npm', ['pack', '--ignore-scripts', '--pack-destination', elsewhere], root);
    writeFileSync(join(elsewhere, 'package.json'), '{"name":"elsewhere","private":true}');
    const install = ['install', '--prefer-offline', '--no-audit', '--no-fund'];
    await run('npm', [...install, './weir-ratelimit-weir-0.1.0.tgz'], elsewhere);
    const own = join(elsewhere, 'data');
    const packed = await startServer(own, {
      main: join(elsewhere, 'node_modules', '@weir-ratelimit', 'weir', 'dist', 'cli.js'),
      args: ['--counters', '1024'],
    });
    const installed = join(elsewhere, 'node_modules', '.bin', 'weir');
    const env = { PATH: process.env.PATH, WEIR_URL: packed.url, WEIR_KEY: ROOT_KEY };
    const runInstalled = (args: string[]) => {
      return promisify(execFile)(installed, args, { env: env as NodeJS.ProcessEnv });
    };
    const result = await runInstalled(['check', 'a', '--limit', '5', '--duration', '1h']);
    expect([result.stdout, result.stderr]).toEqual([
      expect.stringContaining('allowed: limit 5, remaining 4'),
      '',
    ]);
    expect((await runInstalled(['--version'])).stdout).toMatch(/^weir 0\.1\.0 \(node v/);
    expect(await packed.stop()).toEqual({ code: 0, signal: null });
    removeDirectory(elsewhere);
  }, 180_000);
});
