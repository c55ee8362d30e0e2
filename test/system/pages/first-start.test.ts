/**
 * The output of a first start: the two commands of the README in a fresh clone, and old versions of
 * Node.
 */

import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { IS_LONG } from '../../support/guarantees.ts';
import { missingPagesOf } from '../../support/pages.ts';
import {
  copyWorkingTree,
  fetchNode,
  isRegistryReachable,
  linkPackages,
} from '../../support/programs/npm.ts';
import {
  CLI_PATH,
  cleanEnvironment,
  freePort,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';

const MINUTE = 60_000;
const RECOMMENDED = '22.22.2';
/** Versions of Node, each with the one of npm that was released with it. */
const UNSUPPORTED = [
  ['16', '8'],
  ['18', '10'],
  ['20.10', '10'],
  ['22.10', '10'],
  ['23', '10'],
].slice(0, IS_LONG ? undefined : 1);

interface CommandResult {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** The environment of a new shell in which `node` is the given one. */
function environmentWith(node: string): NodeJS.ProcessEnv {
  const own = Object.entries(cleanEnvironment()).filter(([name]) => !name.startsWith('npm_'));
  return { ...Object.fromEntries(own), PATH: `${dirname(node)}:${process.env.PATH}` };
}

/** Removes npm's warnings about the configuration of the user who runs the tests. */
function withoutUserConfig(stderr: string): string {
  return stderr.replace(/^npm warn Unknown (user|env) config .*\n/gim, '');
}

function runCommand(node: string, cwd: string, command: string, args: string[]): CommandResult {
  const options = { cwd, env: environmentWith(node), encoding: 'utf8' } as const;
  const { status, stdout, stderr } = spawnSync(command, args, options);
  return { code: status, stdout, stderr: withoutUserConfig(stderr) };
}

/** The command lines of all descendants of a process. */
function descendantsOf(pid: number): string[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return children.split(' ').flatMap((child) => {
    if (child === '') return [];
    const command = readFileSync(`/proc/${child}/cmdline`, 'utf8').split('\0').join(' ');
    return [command.trim(), ...descendantsOf(Number(child))];
  });
}

/** Servers to kill if a test fails. */
const running = new Set<ChildProcess>();
afterAll(() => {
  for (const { pid } of running) process.kill(-pid!, 'SIGKILL');
});

async function startByNpm(node: string, cwd: string) {
  const port = String(await freePort());
  const ports = ['--port', port, '--admin-port', String(await freePort())];
  const args = ['start', '--', ...ports, '--counters', '1024', '--data-dir', join(cwd, 'data')];
  // In its own process group, so that npm and its children can be killed together.
  const options = { cwd, env: environmentWith(node), detached: true };
  const child = spawn('npm', args, options);
  running.add(child);
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].on('data', (data) => {
      output[name] += data;
    });
  }
  child.once('close', () => running.delete(child));
  await waitUntil('npm start serves', () => {
    if (child.exitCode !== null) throw new Error(`npm start ended: ${JSON.stringify(output)}`);
    return output.stdout.includes('serves checks');
  });
  const stop = async () => {
    child.kill('SIGTERM');
    const [code] = await once(child, 'close');
    return { code, stderr: withoutUserConfig(output.stderr) };
  };
  return { pid: child.pid!, url: `http://127.0.0.1:${port}`, stop };
}

describe.skipIf(!isRegistryReachable())('in a fresh clone on Node 22', () => {
  const clone = temporaryDirectory();
  let node: string;
  let installed: CommandResult;
  beforeAll(() => {
    node = fetchNode(RECOMMENDED);
    copyWorkingTree(clone);
    installed = runCommand(node, clone, 'npm', ['ci']);
  }, 10 * MINUTE);
  afterAll(() => removeDirectory(clone));

  test('npm ci and npm start print no warning, and npm start builds and serves', async () => {
    expect(installed).toMatchObject({ code: 0, stderr: '' });
    expect(installed.stdout).not.toMatch(/warn/i);
    expect(existsSync(join(clone, 'dist'))).toBe(false);
    const server = await startByNpm(node, clone);
    expect((await fetch(`${server.url}/v1/ratelimits.limit`, { method: 'POST' })).status).toBe(401);
    expect(await missingPagesOf(server.url)).toEqual([]);
    // npm and the server, without another process.
    if (process.platform === 'linux') {
      expect(descendantsOf(server.pid)).toEqual([
        expect.stringMatching(/^node src\/start\/npm\.mjs --port/),
      ]);
    }
    const { code, stderr } = await server.stop();
    expect(stderr).not.toMatch(/npm warn|Warning/i);
    const lines = stderr.trim().split('\n');
    expect(lines.map((line) => JSON.parse(line).msg)).toEqual(
      expect.arrayContaining(['serving', 'draining', 'stopped']),
    );
    expect(code).toBe(0);
  });

  test('npm start serves the current sources', () => {
    const path = join(clone, 'src/commands/run.ts');
    const source = readFileSync(path, 'utf8');
    const help = () => runCommand(node, clone, 'npm', ['start', '--', 'help']).stdout;
    expect(help()).toContain('clear the counters of an identifier');
    writeFileSync(path, source.replace('clear the counters of', 'a changed summary of'));
    expect(help()).toContain('a changed summary of an identifier');
    writeFileSync(path, 'not a source');
    const broken = runCommand(node, clone, 'npm', ['start', '--', 'help']);
    expect([broken.code, broken.stdout]).toEqual([5, expect.not.stringContaining('identifier')]);
    expect(broken.stderr).toContain('weir: the build failed; its messages are above\n');
    writeFileSync(path, source);
  });
});

describe('with the packages of npm ci --omit=dev', () => {
  const clone = temporaryDirectory();
  beforeAll(() => {
    copyWorkingTree(clone);
    linkPackages(clone, false);
  });
  afterAll(() => removeDirectory(clone));

  test('npm start without a build prints one message with the command to run', () => {
    const { code, stderr } = runCommand(process.execPath, clone, 'npm', ['start']);
    expect([code, stderr]).toEqual([
      5,
      'weir: there is no build in dist; run "npm ci && npm run build" first\n',
    ]);
  });
});

describe.skipIf(!isRegistryReachable())('on an unsupported Node,', () => {
  const directory = temporaryDirectory();
  const clone = join(directory, 'clone');
  beforeAll(() => copyWorkingTree(clone));
  afterAll(() => removeDirectory(directory));

  test.each(UNSUPPORTED)(
    '%s, every command and npm start print one message with the supported versions',
    (version, npm) => {
      const node = fetchNode(version);
      const full = execFileSync(node, ['--version'], { encoding: 'utf8' }).trim().slice(1);
      const message =
        `weir: this is Node ${full}, and weir needs Node 20.20.2, 22.22.2, 24.14.1 or 26.0.0, or a` +
        ' later release of one of these major versions; Node 22 is recommended\n';
      const failure = { code: 5, stdout: '', stderr: message };
      const commands = [[], ['--help'], ['help'], ['--port', '0'], ['keys', 'list'], ['nonsense']];
      for (const args of commands) {
        expect([args, runCommand(node, directory, node, [CLI_PATH, ...args])]).toEqual([
          args,
          failure,
        ]);
      }
      expect(readdirSync(directory)).toEqual(['clone']);
      const start = ['-y', '-p', `node@${version}`, '-p', `npm@${npm}`, '--', 'npm', 'start'];
      const { code, stderr } = runCommand(process.execPath, clone, 'npx', start);
      expect([code, stderr]).toEqual([5, expect.stringContaining(message)]);
      expect(stderr).not.toMatch(/ at |Error/);
    },
    5 * MINUTE,
  );
});
