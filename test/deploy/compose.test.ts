/** The files of deploy/compose agree with weir and with one another. */

import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { environmentName, SETTING_NAMES } from '../../src/config/schema.ts';
import { removeDirectory, startServer, temporaryDirectory } from '../support/server.ts';
import { runWeir } from '../support/weir-command.ts';

const DIRECTORY = new URL('../../deploy/compose/', import.meta.url).pathname;
const NGINX_COMMAND =
  'gateway nginx --namespace site --namespace login=/login --upstream http://application:3000';

interface Service {
  environment?: Record<string, string>;
  volumes?: string[];
  build?: string;
}

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
    return source.startsWith('./')
      ? !existsSync(join(DIRECTORY, source))
      : !(source in compose.volumes);
  });
  expect(missing).toEqual([]);
});

test('nginx.conf is what weir prints for the policies of weir.json', async () => {
  const directory = temporaryDirectory();
  const socket = join(directory, 'gateway.sock');
  const mode = compose.services.weir.environment?.WEIR_GATEWAY_SOCKET_MODE as string;
  const server = await startServer(join(directory, 'data'), {
    args: [
      ...['--config', join(DIRECTORY, 'weir.json'), '--counters', '1024'],
      ...['--gateway-socket', socket, '--gateway-socket-mode', mode],
    ],
  });
  try {
    const { code, stdout, stderr } = await runWeir(server.url, NGINX_COMMAND.split(' '));
    expect([code, stderr]).toEqual([0, '']);
    const inContainer = compose.services.weir.environment?.WEIR_GATEWAY_SOCKET as string;
    expect(read('nginx.conf')).toBe(stdout.replaceAll(socket, inContainer));
    // Both services mount the directory of the socket.
    const mounts = ['weir', 'nginx'].map((name) => compose.services[name].volumes);
    for (const mount of mounts) expect(mount).toContain(`sockets:${dirname(inContainer)}`);
  } finally {
    await server.stop();
    removeDirectory(directory);
  }
});
