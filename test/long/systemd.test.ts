/**
 * The unit in a booted systemd, in containers with Debian 12 (systemd 252) and Debian 13 (257).
 * It requires root and the Debian packages podman, runc and mmdebstrap.
 */

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ContainerImages, canBuildImages } from '../support/programs/container-images.ts';
import { debianRoot } from '../support/programs/debian-root.ts';
import { ROOT_KEY, removeDirectory, temporaryDirectory, waitUntil } from '../support/server.ts';

const ROOT = new URL('../..', import.meta.url).pathname;
const MINUTE = 60_000;
const PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'nginx-light', 'curl'];
const POLICIES = { login: { gateway: 'nginx', limit: 2, duration: 3_600_000 } };
const CHECK = ['check', 'user_1', '--namespace', 'of_test', '--limit', '5', '--duration', '1h'];

describe.runIf(canBuildImages).each([
  { suite: 'bookworm', systemd: '252' },
  { suite: 'trixie', systemd: '257' },
] as const)('the unit under systemd $systemd', ({ suite, systemd }) => {
  const machines = new ContainerImages();
  const root = temporaryDirectory();
  const name = `weir-${suite}-${process.pid}`;

  /** Runs a command in the machine. @returns its exit code and output */
  function run(...command: string[]) {
    const { status, stdout, stderr } = machines.exec(name, ...command);
    return { status, output: stdout + stderr };
  }
  function runOk(...command: string[]): string {
    const { status, output } = run(...command);
    expect([command, status, status === 0 ? '' : output + journal()]).toEqual([command, 0, '']);
    return output;
  }
  const weir = (...args: string[]) =>
    runOk('env', `WEIR_KEY=${ROOT_KEY}`, '/usr/local/bin/weir', ...args);
  const journal = () => run('journalctl', '--unit', 'weir', '--no-pager', '--output', 'cat').output;
  const show = (property: string) =>
    runOk('systemctl', 'show', 'weir', '--property', property, '--value').trim();
  const configure = (config: object) =>
    writeFileSync(join(root, 'etc/weir/weir.json'), JSON.stringify(config));
  function dropIn(file: string, text: string): void {
    const directory = join(root, 'etc/systemd/system/weir.service.d');
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, file), text);
    runOk('systemctl', 'daemon-reload');
  }

  beforeAll(async () => {
    const debian = await debianRoot(suite, PACKAGES);
    if (debian === undefined) throw new Error(`mmdebstrap cannot make ${suite}`);
    execFileSync('tar', ['--extract', '--file', debian, '--directory', root]);
    copyFileSync(process.execPath, join(root, 'usr/bin/node'));
    const packed = temporaryDirectory();
    const npm = (...args: string[]) => execFileSync('npm', args, { cwd: ROOT, stdio: 'pipe' });
    npm('pack', '--silent', '--pack-destination', packed);
    const tarball = join(packed, 'weir-ratelimit-weir-0.1.0.tgz');
    const options = ['--omit=dev', '--no-audit', '--no-fund'];
    npm('install', '--prefix', join(root, 'opt/weir'), ...options, tarball);
    removeDirectory(packed);
    const unit = 'etc/systemd/system/weir.service';
    copyFileSync(join(ROOT, 'deploy/systemd/weir.service'), join(root, unit));
    mkdirSync(join(root, 'etc/weir'));
    writeFileSync(join(root, 'etc/weir/root.key'), ROOT_KEY, { mode: 0o400 });
    configure({ policies: POLICIES });
    machines.boot(name, root);
    await waitUntil('systemd has started', () => {
      return /running|degraded/.test(run('systemctl', 'is-system-running').output);
    });
    runOk('ln', '-s', '/opt/weir/node_modules/.bin/weir', '/usr/local/bin/weir');
    runOk('systemctl', 'stop', 'nginx');
  }, 20 * MINUTE);
  afterAll(() => {
    machines.remove();
    removeDirectory(root);
  });

  test('runs in this systemd', () => {
    expect(runOk('systemctl', '--version')).toMatch(new RegExp(`^systemd ${systemd} `));
  });

  test('is ready when the start job has ended', () => {
    runOk('systemctl', 'enable', '--now', 'weir');
    expect(weir('health')).toBe('ready\n');
    expect(show('ActiveState')).toBe('active');
  });

  test('answers checks, as a user of its own without capabilities', () => {
    expect(weir(...CHECK)).toContain('remaining 4');
    const status = readFileSync(`/proc/${hostPid()}/status`, 'utf8');
    expect(status).toMatch(/^CapEff:\s0{16}$/m);
    expect(status).not.toMatch(/^Uid:\s0/m);
    expect(status).toMatch(/^NoNewPrivs:\s1$/m);
  });

  test('keeps the root key from other users', () => {
    expect(journal()).not.toContain(ROOT_KEY);
    const user = ['setpriv', '--reuid', 'www-data', '--clear-groups'];
    const path = '/var/lib/weir/data/store.db';
    expect(run(...user, 'cat', path).output).toContain('Permission denied');
  });

  test('reads policies again on reload', async () => {
    configure({
      policies: { ...POLICIES, other: { gateway: 'nginx', limit: 1, duration: 1_000 } },
    });
    runOk('systemctl', 'reload', 'weir');
    await waitUntil('it has read them', () => journal().includes('policies were reloaded'));
    expect(weir('namespaces', 'list')).toContain('other');
  });

  test('restarts after kill -9, with its counters', async () => {
    // A checkpoint is written every second.
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    runOk('systemctl', 'kill', '--signal', 'KILL', '--kill-whom', 'main', 'weir');
    await waitUntil('it has restarted', () => {
      return show('NRestarts') === '1' && show('ActiveState') === 'active';
    });
    expect(weir(...CHECK)).toContain('remaining 3');
  });

  test('keeps counters over a restart of the unit', () => {
    runOk('systemctl', 'restart', 'weir');
    expect(weir(...CHECK)).toContain('remaining 2');
  });

  test('finds an acceptor in an endless loop, by the CPU time that it may read', async () => {
    const fault = new URL('../support/acceptor-fault.preload.mjs', import.meta.url).pathname;
    copyFileSync(fault, join(root, 'opt/fault.mjs'));
    const variables = [
      'NODE_OPTIONS=--import=/opt/fault.mjs',
      'FAULT=block',
      'FAULT_FILE=/opt/now',
    ];
    dropIn('fault.conf', `[Service]\nEnvironment=${variables.join(' ')}\n`);
    runOk('systemctl', 'restart', 'weir');
    writeFileSync(join(root, 'opt/now'), '');
    const found = /acceptor 0 is unresponsive: .* in which it used \d{4,} ms of CPU time/;
    await waitUntil('it is found', () => found.test(journal()));
    rmSync(join(root, 'opt/now'));
    rmSync(join(root, 'etc/systemd/system/weir.service.d/fault.conf'));
    runOk('systemctl', 'daemon-reload');
    runOk('systemctl', 'restart', 'weir');
  });

  test('limits requests through nginx, whose group may open the socket', async () => {
    dropIn('nginx.conf', '[Service]\nGroup=www-data\n');
    runOk('systemctl', 'restart', 'weir');
    const options = ['--namespace', 'login', '--listen', '8080'];
    const site = weir('gateway', 'nginx', ...options, '--upstream', 'http://127.0.0.1:3000');
    writeFileSync(join(root, 'srv/nginx.conf'), `user www-data;\n${site}`);
    const application = 'require("http").createServer((_, r) => r.end("hello")).listen(3000)';
    mkdirSync(join(root, 'srv/nginx'));
    runOk('systemd-run', '--unit', 'application', '/usr/bin/node', '-e', application);
    runOk(
      'systemd-run',
      '--unit',
      'site',
      ...['nginx', '-p', '/srv/nginx', '-c'],
      ...['/srv/nginx.conf', '-g', 'daemon off;'],
    );
    const format = ['--output', '/dev/null', '--write-out', '%{http_code}'];
    const request = () => run('curl', '--silent', ...format, 'http://127.0.0.1:8080/').output;
    const body = () => run('curl', '--silent', 'http://127.0.0.1:3000/').output;
    await waitUntil('nginx listens', () => run('systemctl', 'is-active', 'site').status === 0);
    await waitUntil('the application answers', () => body() === 'hello');
    expect([request(), request(), request()]).toEqual(['200', '200', '429']);
  });

  test('does not restart with an invalid setting, and the journal says why', async () => {
    configure({ port: 70_000 });
    const startedMs = performance.now();
    expect(run('systemctl', 'restart', 'weir').status).not.toBe(0);
    // The wait of ExecStartPost alone was 20 s.
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    expect(show('ExecMainStatus')).toBe('2');
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    expect([show('ActiveState'), show('NRestarts')]).toEqual(['failed', '0']);
    expect(journal()).toContain('port');
    configure({ policies: POLICIES });
    runOk('systemctl', 'start', 'weir');
  });

  test('repeats a start that fails for another reason, until it succeeds', async () => {
    runOk('systemctl', 'stop', 'weir');
    const listen = 'require("net").createServer((s) => s.destroy()).listen(7070, "127.0.0.1")';
    runOk('systemd-run', '--unit', 'other', '/usr/bin/node', '-e', listen);
    await waitUntil('the port is in use', () => {
      return run('curl', '--silent', 'http://127.0.0.1:7070/').status !== 7;
    });
    expect(run('systemctl', 'start', 'weir').status).not.toBe(0);
    await waitUntil('it was started again', () => Number(show('NRestarts')) > 5);
    runOk('systemctl', 'stop', 'other');
    await waitUntil('it is ready', () => show('ActiveState') === 'active');
    expect(weir('health')).toBe('ready\n');
  });

  test('stops with exit code 0', () => {
    runOk('systemctl', 'stop', 'weir');
    expect([show('Result'), show('ExecMainStatus')]).toEqual(['success', '0']);
  });

  /** The process id of weir outside of the machine. */
  function hostPid(): number {
    const [{ State }] = JSON.parse(machines.podman('inspect', name));
    const children = readFileSync(`/proc/${State.Pid}/task/${State.Pid}/children`, 'utf8');
    const pids = children.trim().split(' ').map(Number);
    return pids.find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('weir'))!;
  }
});
