/** The files of deploy/compose agree with weir and with one another. */

import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { environmentName, SETTING_NAMES } from '../../src/config/schema.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { startServer } from '../support/server.ts';
import { callWeir } from '../support/weir-command.ts';

const DIRECTORY = new URL('../../deploy/compose/', import.meta.url).pathname;
const NGINX_COMMAND =
  'gateway nginx --namespace site --namespace login=/login --listen 0.0.0.0:8080' +
  ' --upstream http://application:3000';

interface Service {
  environment?: Record<string, string>;
  volumes?: string[];
  build?: string;
  image: string;
  ports?: string[];
}

/** Files of the Helm chart. */
const RULES = '../helm/files/prometheus-rules.yml';
const DASHBOARD = '../helm/files/grafana-dashboard.json';

const own = useDataDirectory([]);
const read = (name: string) => readFileSync(join(DIRECTORY, name), 'utf8');
const compose = parse(read('compose.yaml')) as {
  services: Record<string, Service>;
  volumes: Record<string, null>;
};

test('every variable is a setting of weir', () => {
  const known = ['WEIR_CONFIG', ...SETTING_NAMES.map(environmentName)];
  const variables = Object.keys(compose.services.weir.environment ?? {});
  expect(variables.filter((name) => !known.includes(name))).toEqual([]);
});

test('every mounted file and every volume exists', () => {
  const sources = Object.values(compose.services).flatMap(({ volumes = [] }) => {
    return volumes.map((volume) => volume.split(':')[0]);
  });
  const missing = sources.filter((source) => {
    return source.startsWith('.')
      ? !existsSync(join(DIRECTORY, source))
      : !(source in compose.volumes);
  });
  expect(missing).toEqual([]);
});

test('nginx.conf is what weir prints for the policies of weir.json', async () => {
  const socket = join(own.dataDir, 'gateway.sock');
  const mode = compose.services.weir.environment?.WEIR_GATEWAY_SOCKET_MODE as string;
  const server = await startServer(join(own.dataDir, 'data'), {
    args: [
      ...['--config', join(DIRECTORY, 'weir.json'), '--counters', '1024'],
      ...['--gateway-socket', socket, '--gateway-socket-mode', mode],
    ],
  });
  own.started.push(server);
  const { code, stdout, stderr } = await callWeir(server.url, NGINX_COMMAND.split(' '));
  expect([code, stderr]).toEqual([0, '']);
  const inContainer = compose.services.weir.environment?.WEIR_GATEWAY_SOCKET as string;
  expect(read('nginx.conf')).toBe(stdout.replaceAll(socket, inContainer));
  // Both services mount the directory of the socket.
  const mounts = ['weir', 'nginx'].map((name) => compose.services[name].volumes);
  for (const mount of mounts) expect(mount).toContain(`sockets:${dirname(inContainer)}`);
});

test('every image that is not built here has a version, and weir is reachable locally only', () => {
  for (const [name, { build, image, ports = [] }] of Object.entries(compose.services)) {
    if (build === undefined) expect([name, image]).toEqual([name, expect.stringMatching(/:v?\d/)]);
    const isPublic = ports.some((port) => !port.startsWith('127.0.0.1:'));
    expect([name, isPublic]).toEqual([name, name === 'nginx']);
  }
});

/** Where a container sees a file of the directory. */
function mountOf(service: string, file: string): string {
  const volumes = compose.services[service].volumes ?? [];
  const found = volumes.find((volume) => volume.startsWith(`${file}:`));
  return found?.split(':')[1] ?? '';
}

test.each([
  ['prometheus-rules', RULES],
  ['grafana', DASHBOARD],
])('weir print %s prints %s', async (name, file) => {
  const { code, stdout } = await callWeir('', ['print', name]);
  expect([code, stdout]).toEqual([0, read(file)]);
});

test('Prometheus finds the rules beside its configuration', () => {
  const { rule_files: files, scrape_configs: jobs } = parse(read('prometheus.yml'));
  const inContainer = mountOf('prometheus', RULES);
  expect(files).toEqual([basename(inContainer)]);
  expect(dirname(inContainer)).toBe(dirname(mountOf('prometheus', './prometheus.yml')));
  // The job that the rules select.
  expect(jobs).toHaveLength(1);
  expect(read(RULES)).toContain(`job="${jobs[0].job_name}"`);
});

describe('Grafana', () => {
  test('reads the dashboard from the directory of its provider', () => {
    const { providers } = parse(read('grafana/dashboards.yaml'));
    const inContainer = mountOf('grafana', DASHBOARD);
    expect(providers).toHaveLength(1);
    expect(providers[0].options.path).toBe(dirname(inContainer));
    const { environment = {} } = compose.services.grafana;
    expect(environment.GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH).toBe(inContainer);
  });

  test('asks the Prometheus of the file, and knows its scrape interval', () => {
    const { datasources } = parse(read('grafana/datasources.yaml'));
    expect(datasources).toHaveLength(1);
    const [{ type, url, jsonData }] = datasources;
    expect(type).toBe('prometheus');
    const { hostname, port } = new URL(url);
    expect(compose.services[hostname].ports).toEqual([expect.stringMatching(`:${port}$`)]);
    const { global } = parse(read('prometheus.yml'));
    expect(jsonData.timeInterval).toBe(global.scrape_interval);
  });

  test('finds its provisioning where its image looks for it', () => {
    for (const kind of ['datasources', 'dashboards']) {
      const inContainer = mountOf('grafana', `./grafana/${kind}.yaml`);
      expect(dirname(inContainer)).toBe(`/etc/grafana/provisioning/${kind}`);
    }
  });

  test('lets everybody read, and nobody sign in', () => {
    const { environment } = compose.services.grafana;
    expect(environment).toMatchObject({
      GF_AUTH_ANONYMOUS_ENABLED: 'true',
      GF_AUTH_ANONYMOUS_ORG_ROLE: 'Viewer',
      GF_AUTH_BASIC_ENABLED: 'false',
      GF_AUTH_DISABLE_LOGIN_FORM: 'true',
    });
  });
});
