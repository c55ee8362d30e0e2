/**
 * The Compose file: the reference implementation reads it, and podman-compose runs it. nginx,
 * Prometheus and Node are those of Debian and npm, under the names of the images in the file.
 * Neither has Grafana, so its service is not started. It requires what the test of the
 * image requires. podman-compose has its ports on this machine: 7070, 8080 and 9090.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  ContainerImages,
  canBuildImages,
  RUN_OPTIONS,
} from '../support/programs/container-images.ts';
import { debianRoot } from '../support/programs/debian-root.ts';
import { goTool } from '../support/programs/go-tool.ts';
import { pythonEnvironment } from '../support/programs/python-environment.ts';
import { ROOT_KEY, waitUntil } from '../support/server.ts';

const FILE = new URL('../../deploy/compose/compose.yaml', import.meta.url).pathname;
const MINUTE = 60_000;
const SITE = 'http://127.0.0.1:8080';
const KEY = { WEIR_ROOT_KEY: ROOT_KEY };

const python = await pythonEnvironment('podman-compose', ['podman-compose==1.5.0']);
const composeGo = await goTool('github.com/compose-spec/compose-go/v2/cmd', 'v2.16.2');

test.skipIf(composeGo === undefined)('the reference implementation accepts the file', () => {
  const { status, stderr } = spawnSync(composeGo!, ['-no-interpolation', FILE], {
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([0, '']);
});

test.skipIf(python === undefined)(
  'a missing root key is an error that says what it must be',
  () => {
    const env = { PATH: process.env.PATH } as NodeJS.ProcessEnv;
    const options = { env, encoding: 'utf8' } as const;
    const args = ['--file', FILE, 'config'];
    const { status, stderr } = spawnSync(`${python!.bin}/podman-compose`, args, options);
    expect(status).not.toBe(0);
    expect(stderr).toContain('must be a key, such as the output of openssl rand -hex 32');
  },
);

describe.skipIf(!canBuildImages || python === undefined)('the services of the Compose file', () => {
  const images = new ContainerImages();

  function compose(...args: string[]): void {
    execFileSync(
      `${python!.bin}/podman-compose`,
      [
        ...['--podman-path', images.podmanScript(), '--in-pod', 'false'],
        ...['--podman-run-args', RUN_OPTIONS.join(' '), '--file', FILE, ...args],
      ],
      { env: { ...process.env, ...KEY } as NodeJS.ProcessEnv, stdio: 'pipe' },
    );
  }

  beforeAll(async () => {
    await images.build('amd64');
    images.podman('tag', 'weir-amd64', 'localhost/weir');
    const nginx = await debianRoot('trixie', ['nginx']);
    const prometheus = await debianRoot('trixie', ['prometheus']);
    images.import('docker.io/library/nginx:1.28', nginx!);
    const command = [
      'prometheus',
      '--config.file=/etc/prometheus/prometheus.yml',
      '--storage.tsdb.path=/prometheus',
    ];
    images.import(
      'docker.io/prom/prometheus:v3.7.3',
      prometheus!,
      `ENTRYPOINT ${JSON.stringify(command)}`,
    );
    // podman has no systemd here to run health checks on time, so weir starts first.
    compose('up', '--detach', '--no-build', '--no-deps', 'weir', 'application');
    // On a busy machine it answers checks before its shard worker runs, and is degraded.
    await waitUntil('weir is ready', async () => {
      const { stdout } = images.exec('weir_weir_1', 'weir', 'health', '--wait', '30s');
      return stdout === 'ready\n';
    });
    compose('up', '--detach', '--no-build', '--no-deps', 'nginx', 'prometheus');
    await waitUntil('nginx answers', async () => {
      return await fetch(SITE).then(
        () => true,
        () => false,
      );
    });
  }, 20 * MINUTE);

  afterAll(() => {
    compose('down', '--volumes');
    images.remove();
  }, 2 * MINUTE);

  test('limit the requests of a client, through the Unix socket', async () => {
    const response = await fetch(SITE);
    expect([response.status, await response.text()]).toEqual([200, 'hello\n']);
    expect(response.headers.get('RateLimit')).toMatch(/^"site";r=\d+;t=\d+$/);
    const statuses: number[] = [];
    for (let n = 0; n < 6; n++) statuses.push((await fetch(`${SITE}/login`)).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200, 429]);
  });

  test('answer checks with the root key', async () => {
    const response = await fetch('http://127.0.0.1:7070/v1/ratelimits.limit', {
      method: 'POST',
      headers: { Authorization: `Bearer ${ROOT_KEY}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ identifier: 'user_1', limit: 5, duration: 60_000 }),
    });
    expect(await response.json()).toMatchObject({ success: true, remaining: 4 });
  });

  test('have the metrics of weir in Prometheus', { timeout: MINUTE }, async () => {
    const query = encodeURIComponent('up{job="weir"} == 1');
    await waitUntil('Prometheus has scraped weir', async () => {
      const response = await fetch(`http://127.0.0.1:9090/api/v1/query?query=${query}`);
      const { data } = (await response.json()) as { data?: { result: unknown[] } };
      return data?.result.length === 1;
    });
  });

  test('evaluate the rules of weir in Prometheus', { timeout: MINUTE }, async () => {
    await waitUntil('Prometheus has evaluated every rule', async () => {
      const response = await fetch('http://127.0.0.1:9090/api/v1/rules');
      const { data } = (await response.json()) as {
        data: { groups: { name: string; rules: { health: string }[] }[] };
      };
      const names = data.groups.map(({ name }) => name);
      expect(names.toSorted()).toEqual(['weir', 'weir-records', 'weir-redis']);
      return data.groups.every(({ rules }) => rules.every(({ health }) => health === 'ok'));
    });
  });
});
