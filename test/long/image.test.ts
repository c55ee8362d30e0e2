/**
 * The image of the Dockerfile, built by buildah and run by podman. It requires root
 * and the Debian packages buildah, podman, runc and mmdebstrap. The image for arm64 runs under
 * qemu-user-static, if that is registered.
 */

import { chownSync, existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LONGEST_WINDOW_MS, sendCheck } from '../support/http.ts';
import { PAGE_PATHS } from '../support/pages.ts';
import {
  type Architecture,
  ContainerImages,
  canBuildImages,
  canEmulateArm64,
} from '../support/programs/container-images.ts';
import {
  freePort,
  ROOT_KEY,
  removeDirectory,
  temporaryDirectory,
  waitUntil,
} from '../support/server.ts';
import { sendDistinctChecks } from './distinct-checks.ts';

const MINUTE = 60_000;
const COMPRESSED_MAX = 60e6;
const IDENTIFIERS = 1_000_000;
/** Another one than that of the image. */
const USER = 20_000;
const KEY = ['--env', `WEIR_ROOT_KEY=${ROOT_KEY}`];
const CLIENT_KEY = ['--env', `WEIR_KEY=${ROOT_KEY}`];
const FIVE_PER_HOUR = ['--limit', '5', '--duration', '1h'];

const images = new ContainerImages();
afterAll(() => images.remove());

let serial = 0;
/** Starts a container that is removed at the end. @returns its name */
function start(architecture: Architecture, options: string[], args: string[] = []): string {
  const name = `weir-test-${process.pid}-${serial++}`;
  images.start(name, ...KEY, ...CLIENT_KEY, ...options, `weir-${architecture}`, ...args);
  return name;
}

/** Starts a container, and waits until it answers checks. @returns its name */
async function startReady(architecture: Architecture, options: string[], args: string[] = []) {
  const name = start(architecture, options, args);
  // Under emulation threads may be so slow that weir replaces them: it is degraded then.
  const { status, stderr } = images.exec(name, 'weir', 'health', '--wait', '60s');
  expect([status, stderr, status === 0 ? '' : images.logOf(name)]).toEqual([0, '', '']);
  return name;
}

/** Stops a container as a runtime does: by the signal of the image, and SIGKILL after 10 s. */
function stop(name: string): { exitCode: number; isOomKilled: boolean } {
  images.podman('stop', '--time', '10', name);
  const [{ State }] = JSON.parse(images.podman('inspect', name));
  return { exitCode: State.ExitCode, isOomKilled: State.OOMKilled };
}

const STOPPED = { exitCode: 0, isOomKilled: false };

function filesBelow(directory: string, found: string[] = []): string[] {
  for (const name of readdirSync(directory)) {
    const path = join(directory, name);
    if (lstatSync(path).isDirectory()) filesBelow(path, found);
    else found.push(path);
  }
  return found;
}

/** Packages of a lock file for production, by path. */
function productionPackages(): string[] {
  const lock = JSON.parse(
    readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8'),
  );
  return Object.entries<{ dev?: boolean; optional?: boolean }>(lock.packages)
    .filter(([path, { dev, optional }]) => path !== '' && !dev && !optional)
    .map(([path]) => path);
}

const architectures: { architecture: Architecture; isSkipped: boolean; binaries: string[] }[] = [
  {
    architecture: 'amd64',
    isSkipped: false,
    binaries: [
      '@libsql/linux-x64-gnu/index.node',
      '@napi-rs/nice-linux-x64-gnu/nice.linux-x64-gnu.node',
      '@uwsjs/linux-x64-24/uws.node',
    ],
  },
  {
    architecture: 'arm64',
    isSkipped: !canEmulateArm64,
    binaries: [
      '@libsql/linux-arm64-gnu/index.node',
      '@napi-rs/nice-linux-arm64-gnu/nice.linux-arm64-gnu.node',
      'uWebSockets.js/dist/bin/uws_linux_arm64_127.node',
    ],
  },
];

describe.runIf(canBuildImages).each(architectures)(
  'the image for $architecture',
  { timeout: 5 * MINUTE },
  ({ architecture, isSkipped, binaries }) => {
    beforeAll(async () => {
      if (!isSkipped) await images.build(architecture);
    }, 60 * MINUTE);

    const testImage = test.skipIf(isSkipped);

    testImage('has at most 60 MB as a registry stores it', () => {
      const bytes = images.compressedBytes(architecture);
      console.log(`${architecture}: ${(bytes / 1e6).toFixed(1)} MB compressed`);
      expect(bytes).toBeLessThanOrEqual(COMPRESSED_MAX);
    });

    testImage('tells a runtime how to run, check, stop and describe it', () => {
      expect(images.inspect(architecture)).toMatchObject({
        Architecture: architecture,
        User: '10001:10001',
        Healthcheck: { Test: ['CMD', 'weir', 'health'] },
        Config: {
          Entrypoint: ['weir'],
          Cmd: ['serve'],
          StopSignal: 'SIGTERM',
          Volumes: { '/var/lib/weir': {} },
          ExposedPorts: { '7070/tcp': {}, '7071/tcp': {} },
          Labels: {
            'org.opencontainers.image.title': 'weir',
            'org.opencontainers.image.licenses': 'Apache-2.0',
            'org.opencontainers.image.version': '0.1.0',
            'org.opencontainers.image.revision': '0123abc',
            'org.opencontainers.image.source': 'https://example.com/weir',
          },
        },
      });
    });

    testImage('has no shell, no other package, and no binary that its Node cannot load', () => {
      images.withFiles(architecture, (root) => {
        const files = filesBelow(root).map((path) => path.slice(root.length + 1));
        const commands = files.filter((path) => /(^|\/)s?bin\//.test(path));
        expect(commands.filter((path) => !path.startsWith('opt/'))).toEqual([
          'usr/local/bin/node',
          'usr/local/bin/weir',
        ]);
        const modules = 'opt/weir/node_modules/';
        const native = files.filter((path) => path.endsWith('.node'));
        expect(native.map((path) => path.slice(modules.length)).sort()).toEqual(binaries);
        const absent = productionPackages().filter(
          (path) => !existsSync(join(root, 'opt/weir', path)),
        );
        expect(absent).toEqual([]);
        for (const name of ['vitest', 'typebox', 'rolldown']) {
          expect([name, existsSync(join(root, modules, name))]).toEqual([name, false]);
        }
        const licences = ['opt/weir/LICENSE', 'opt/weir/NOTICE', 'usr/local/LICENSE'];
        expect(licences.filter((path) => !files.includes(path))).toEqual([]);
      });
    });

    testImage('serves checks without a network, capabilities and a writable root', async () => {
      const version = images.runOnce('--network', 'none', `weir-${architecture}`, 'version');
      expect(version.stdout).toMatch(/^weir 0\.1\.0 \(node v2[24]\.\d+\.\d+, linux-(x|arm)64\)\n$/);
      const name = await startReady(architecture, ['--network', 'none']);
      expect(images.podman('healthcheck', 'run', name)).toBe('');
      const checked = images.exec(name, 'weir', 'check', 'user_1', ...FIVE_PER_HOUR);
      expect([checked.status, checked.stdout]).toEqual([
        0,
        expect.stringContaining('allowed: limit 5, remaining 4'),
      ]);
      expect(images.logOf(name)).not.toContain(ROOT_KEY);
      expect(stop(name)).toEqual(STOPPED);
    });

    testImage('serves all pages', async () => {
      const name = await startReady(architecture, ['--network', 'none']);
      // The image has no other client.
      const client = `for (const path of ${JSON.stringify(PAGE_PATHS)}) {
        const { status } = await fetch('http://127.0.0.1:7070' + path);
        console.log(path, status);
      }`;
      const { stdout } = images.exec(name, 'node', '--input-type=module', '--eval', client);
      expect(stdout.trim().split('\n')).toEqual(PAGE_PATHS.map((path) => `${path} 200`));
      expect(stop(name)).toEqual(STOPPED);
    });

    testImage('keeps keys, overrides and counters in a volume', async () => {
      const volume = ['--network', 'none', '--volume', `data-${architecture}:/var/lib/weir`];
      const first = await startReady(architecture, volume);
      images.exec(first, 'weir', 'check', 'user_1', ...FIVE_PER_HOUR);
      expect(stop(first)).toEqual(STOPPED);
      const second = await startReady(architecture, volume);
      const { stdout } = images.exec(second, 'weir', 'check', 'user_1', ...FIVE_PER_HOUR);
      expect(stdout).toContain('allowed: limit 5, remaining 3');
      expect(stop(second)).toEqual(STOPPED);
    });

    testImage('runs under any user id that may write to the volume', async () => {
      const directory = temporaryDirectory();
      chownSync(directory, USER, USER);
      const volume = ['--volume', `${directory}:/var/lib/weir`];
      const user = ['--user', `${USER}:${USER}`];
      const name = await startReady(architecture, ['--network', 'none', ...user, ...volume]);
      expect(readdirSync(directory)).toEqual(['data']);
      expect(stop(name)).toEqual(STOPPED);
      removeDirectory(directory);
    });

    testImage('exits with 2 and a sentence for an invalid setting', () => {
      const image = [`weir-${architecture}`, 'serve', '--port', '70000'];
      const { status, stdout, stderr } = images.runOnce('--network', 'none', ...image);
      expect([status, stdout]).toEqual([2, '']);
      expect(stderr).toContain('weir: --port must be');
    });

    // Under emulation the load takes hours.
    test.runIf(architecture === 'amd64')(
      `answers checks of ${IDENTIFIERS} identifiers under a memory limit of 320 MiB`,
      async () => {
        // The network of the machine: the load comes from outside of the container.
        const [port, adminPort] = [await freePort(), await freePort()];
        const name = await startReady(architecture, [
          ...['--network', 'host', '--memory', '320m', '--memory-swap', '320m'],
          ...['--env', 'WEIR_HOST=127.0.0.1', '--env', `WEIR_PORT=${port}`],
          ...['--env', 'WEIR_ADMIN_HOST=127.0.0.1', '--env', `WEIR_ADMIN_PORT=${adminPort}`],
        ]);
        await waitUntil('it logs', () => images.logOf(name).includes('"msg":"serving"'));
        const serving = images
          .logOf(name)
          .split('\n')
          .find((line) => line.includes('"msg":"serving"'));
        expect(JSON.parse(serving ?? '')).toMatchObject({ memoryLimitMiB: 320 });
        await sendDistinctChecks(port, { identifiers: IDENTIFIERS, connections: 64 });
        const body = { identifier: 'one more', limit: 10, duration: LONGEST_WINDOW_MS };
        expect(await sendCheck(port, body)).toMatchObject({ success: true, remaining: 9 });
        expect(stop(name)).toEqual(STOPPED);
      },
      10 * MINUTE,
    );
  },
);
