/** `weir gateway` on a running server. */

import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { EXIT } from '../../src/core/exit.ts';
import { GATEWAYS } from '../../src/policies/gateways.ts';
import { useDataDirectory } from '../support/data-directory.ts';
import { type PolicySettings, writeConfig } from '../support/policy-config.ts';
import { ROOT_KEY } from '../support/server.ts';
import { SMALL, useServer } from '../support/test-server.ts';
import { callWeir } from '../support/weir-command.ts';

/** One for each gateway, and a second one for Caddy. */
const POLICIES: Record<string, PolicySettings> = {
  ...Object.fromEntries(
    GATEWAYS.map((gateway) => [`of-${gateway}`, { gateway, limit: 5, duration: 60_000 }]),
  ),
  'of-caddy-too': { gateway: 'caddy', limit: 7, duration: 60_000, onError: 'deny' },
};

const server = useServer({ policies: POLICIES });
const place = server.directory;

function weir(args: string[], env: Record<string, string> = {}) {
  return callWeir(server.url, ['gateway', ...args], { env, cwd: place });
}

describe('weir gateway', () => {
  test.each(GATEWAYS.filter((gateway) => gateway !== 'caddy'))(
    'prints for %s its policy, and the address that needs no key',
    async (gateway) => {
      const { code, stdout, stderr } = await weir([gateway, '--listen', '8123']);
      expect([gateway, code, stderr]).toEqual([gateway, 0, '']);
      expect(stdout).toContain(`of-${gateway}`);
      expect(stdout).toContain(String(server.gatewayPort));
      expect(stdout).not.toContain(ROOT_KEY);
      // The code of a module follows its options.
      expect(stdout.split('/**')[0]).not.toContain('undefined');
      // The printed text of these has no listener of its own.
      if (!['express', 'fastify', 'istio'].includes(gateway)) expect(stdout).toContain('8123');
    },
  );

  test('prints loopback by default, and the address of --listen', async () => {
    const bind = async (...args: string[]) => {
      return /bind (\S+ \S+) proto/.exec((await weir(['haproxy', ...args])).stdout)?.[1];
    };
    const listen = async (...args: string[]) => {
      return /listen (.*);/.exec((await weir(['nginx', ...args])).stdout)?.[1];
    };
    expect(await listen()).toBe('127.0.0.1:8080');
    expect(await listen('--listen', '81')).toBe('127.0.0.1:81');
    expect(await listen('--listen', '0.0.0.0:81')).toBe('0.0.0.0:81');
    expect(await listen('--listen', '[::1]:81')).toBe('[::1]:81');
    expect(await listen('--listen', '[::]:81')).toBe('[::]:81 ipv6only=off');
    expect(await bind('--listen', '[::]:81')).toBe('[::]:81 v4v6');
  });

  test('needs --namespace if the gateway has several policies', async () => {
    const { stdout } = await weir(['caddy', '--namespace', 'of-caddy-too']);
    expect(stdout).toContain('of-caddy-too');
    const all = await weir(['caddy']);
    expect([all.code, all.stderr]).toEqual([2, expect.stringContaining('of-caddy, of-caddy-too')]);
  });

  test('prints several policies into one text, with their path prefixes', async () => {
    const args = ['caddy', '--namespace', 'of-caddy', '--namespace', 'of-caddy-too=/login'];
    const { code, stdout, stderr } = await weir(args);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('path /login*');
    expect(stdout.match(/reverse_proxy (@\w+ )?127\.0\.0\.1:3000/g)).toHaveLength(2);
  });

  test.each(GATEWAYS.filter((gateway) => gateway !== 'caddy'))(
    'prints for %s only what must be added with --snippet',
    async (gateway) => {
      const { code, stdout, stderr } = await weir([gateway, '--snippet']);
      expect([gateway, code, stderr]).toEqual([gateway, 0, '']);
      expect(stdout).toContain(`of-${gateway}`);
      // The application and the listener belong to the existing configuration.
      expect(stdout).not.toMatch(/127\.0\.0\.1:3000|listen 8080|bind :8080/);
    },
  );

  test.each(['express', 'fastify'])(
    'prints for %s a snippet that imports its code from the package',
    async (gateway) => {
      const application = join(place, `application-of-${gateway}`);
      const scope = join(application, 'node_modules/@weir-ratelimit');
      mkdirSync(scope, { recursive: true });
      symlinkSync(new URL('../..', import.meta.url).pathname, join(scope, 'weir'));
      const { stdout } = await weir([gateway, '--snippet']);
      writeFileSync(join(application, 'weir.mjs'), stdout);
      const { limit } = await import(join(application, 'weir.mjs'));
      const reply = { headers() {}, setHeader() {}, code: () => ({ send() {} }), end() {} };
      const request = { headers: {}, socket: { remoteAddress: '192.0.2.1' } };
      const setHeader = vi.spyOn(reply, gateway === 'express' ? 'setHeader' : 'headers');
      await limit(request, reply, () => {});
      expect(JSON.stringify(setHeader.mock.calls)).toContain(`of-${gateway}`);
    },
  );

  test.each([
    [
      'nginx',
      'proxy_ssl_name app.example.com;',
      'proxy_pass https://application/shop$request_uri;',
    ],
    ['haproxy', 'sni str(app.example.com)', 'http-request set-path /shop%[path]'],
    ['envoy', 'sni: "app.example.com"', 'prefix_rewrite: /shop/'],
    ['traefik', 'url: "https://app.example.com:443"', 'prefix: /shop'],
    ['apisix', 'scheme: https', '["^(/.*)$", "/shop$1"]'],
  ])('prints for %s an application over TLS, and its path', async (gateway, tls, path) => {
    const { stdout } = await weir([gateway, '--upstream', 'https://app.example.com/shop/']);
    expect(stdout).toContain(tls);
    expect(stdout).toContain(path);
  });

  test('prints weir.lua for HAProxy only', async () => {
    const { code, stdout } = await weir(['haproxy', '--lua']);
    expect([code, stdout]).toEqual([0, expect.stringContaining('core.register_action')]);
    const other = await weir(['nginx', '--lua']);
    const message = 'weir: --lua is valid for haproxy only; got nginx\n';
    expect([other.code, other.stderr]).toEqual([2, message]);
  });

  test.each([
    ['envoy', []],
    ['envoy', ['--snippet']],
    ['istio', []],
  ])('prints for %s %j with --rls a domain, without a call to a server', async (gateway, more) => {
    const args = [gateway, '--rls', '--namespace', 'of-rls', ...more];
    const env = { WEIR_URL: 'http://127.0.0.1:1' };
    const tcp = await weir(args, env);
    expect([tcp.code, tcp.stderr]).toEqual([0, '']);
    expect(tcp.stdout).toContain('domain: "of-rls"\n');
    expect(tcp.stdout).toContain('{ address: "127.0.0.1", port_value: 8081 }');
    expect(tcp.stdout).toContain('failure_mode_deny: false\n');
    const socket = ['--service', '/run/weir/rls.sock', '--on-error', 'deny'];
    const { stdout } = await weir([...args, ...socket], env);
    expect(stdout).toContain('pipe: { path: "/run/weir/rls.sock" }');
    expect(stdout).toContain('failure_mode_deny: true\n');
    const named = await weir([...args, '--service', 'weir.default.svc:8082'], env);
    expect(named.stdout).toMatch(
      /type: STRICT_DNS\n[\s\S]*address: "weir.default.svc", port_value: 8082/,
    );
  });

  const upstream = (url: string) => ['nginx', '--upstream', url];
  const namespaces = (...names: string[]) => names.flatMap((name) => ['--namespace', name]);
  test.each<[string[], string]>([
    [[], '<gateway> is required'],
    [['apache'], '<gateway> must be one of nginx, caddy, haproxy,'],
    [['nginx', '--json'], '--json is not an option of weir gateway'],
    ...['0', ':8080', '::1:8080', 'localhost:8080', '1.2.3:80', '[::1%lo]:80'].map(
      (address): [string[], string] => [
        ['nginx', '--listen', address],
        '--listen must be a port from 1 to 65535, or an IP address and a port, such as' +
          ` 0.0.0.0:8080 or [::1]:8080; got ${JSON.stringify(address)}`,
      ],
    ),
    [upstream('a:1'), '--upstream must be a URL such as http://'],
    [upstream('http://a/?b'), '--upstream must be a URL such as'],
    [upstream('http://a:secret@b'), '; got one with "@"\n'],
    [upstream('http://a/%20'), 'its path must have only segments of letters,'],
    [
      upstream('https://10.0.0.1'),
      'nginx cannot compare an address with a certificate; got https://10.0.0.1',
    ],
    [
      ['nginx', ...namespaces('of-envoy')],
      'weir: the policy for the namespace "of-envoy" is for envoy; policies for nginx: of-nginx\n',
    ],
    [
      ['caddy', ...namespaces('nope')],
      'weir: there is no policy for the namespace "nope"; policies for caddy: of-caddy, of-caddy-too\n',
    ],
    [
      ['caddy', ...namespaces('of-caddy', 'of-caddy-too')],
      'each --namespace after the first needs a path prefix, such as of-caddy-too=/of-caddy-too;' +
        ' got "of-caddy-too"\n',
    ],
    [
      ['caddy', ...namespaces('of-caddy', 'of-caddy=/login')],
      'each --namespace must name a different namespace; got "of-caddy" more than once\n',
    ],
    [
      ['caddy', ...namespaces('of-caddy', 'of-caddy-too=/')],
      'must have a different path prefix; got "/" for "of-caddy" and "of-caddy-too"\n',
    ],
    ...['login', '', '/a//b', '/a/../b', '/a b', '/%61', '/a{b}', '/a=b'].map(
      (prefix): [string[], string] => [
        ['caddy', ...namespaces(`of-caddy=${prefix}`)],
        'the path prefix of --namespace must begin with "/" and have only segments of letters,' +
          ` digits, "-", "_", "." and "~", none of them empty, "." or ".."; got "of-caddy=${prefix}"\n`,
      ],
    ),
    [
      ['istio', ...namespaces('of-istio', 'other=/other')],
      'istio accepts one --namespace: Istio checks a workload with one provider; got 2\n',
    ],
    [['nginx', '--rls'], '--rls is valid for envoy and istio only; got nginx\n'],
    [['envoy', '--rls', '--lua'], '--lua is valid for haproxy only; got envoy\n'],
    [['envoy', '--service', 'a:1'], '--service is valid with --rls only; got a:1 without\n'],
    [['envoy', '--on-error', 'deny'], '--on-error is valid with --rls only; got deny without\n'],
    [
      ['envoy', '--rls', '--on-error', 'open'],
      'weir: --on-error must be allow or deny; got "open"\n',
    ],
    ...['8081', ':8081', 'weir:0', 'weir:65536', '::1:8081', 'http://weir:8081'].map(
      (address): [string[], string] => [
        ['envoy', '--rls', '--service', address],
        '--service must be a host and a port, such as 127.0.0.1:8081, or the path of a Unix' +
          ` socket; got ${JSON.stringify(address)}\n`,
      ],
    ),
    ...[['one', 'two=/two'], ['one=/one'], ['']].map((names): [string[], string] => [
      ['envoy', '--rls', ...names.map((name) => `--namespace=${name}`)],
      `without a path prefix; got ${names.map((name) => JSON.stringify(name)).join(', ')}\n`,
    ]),
    [
      ['express', ...namespaces('of-express=/login')],
      'express accepts --namespace <name> without a path prefix: print weir.mjs once for each',
    ],
  ])('prints one sentence for %j', async (args, sentence) => {
    const { code, stdout, stderr } = await weir(args);
    expect([code, stdout, stderr]).toEqual([EXIT.USAGE, '', expect.stringContaining(sentence)]);
  });
});

describe('without WEIR_GATEWAY_PORT, weir gateway', () => {
  const own = useDataDirectory([]);
  const startWith = (more: string[] = []) => {
    const config = writeConfig(place, { login: { limit: 5, duration: 60_000 } });
    return own.start({ args: [...SMALL, '--config', config, ...more] });
  };

  test('prints a configuration with a key, but not the key itself', async () => {
    const keyed = await startWith();
    const env = { WEIR_URL: keyed.url };
    const { code, stdout } = await weir(['nginx'], env);
    expect([code, stdout]).toEqual([0, expect.stringContaining('X-Weir-Key "$key_of_weir"')]);
    expect(stdout).toContain(String(keyed.port));
    expect(stdout).not.toContain(ROOT_KEY);
    const none = await weir(['envoy'], env);
    expect(none.stderr).toContain('there is no policy for envoy: add one to the file');
  });

  test('prints the Unix socket for gateways', async () => {
    const socket = join(own.dataDir, 'weir.sock');
    const local = await startWith(['--gateway-socket', socket]);
    const { stdout } = await weir(['nginx'], { WEIR_URL: local.url });
    expect(stdout).toContain(`unix:${socket}`);
  });
});
