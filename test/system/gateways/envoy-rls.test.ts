/** A real Envoy that calls the rate limit service, mostly with the configuration that weir prints. */

import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { connect as connectHttp2, type IncomingHttpHeaders } from 'node:http2';
import { connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import type { RlsSetup } from '../../../src/commands/gateways/setup.ts';
import { CERTIFICATE_A, CERTIFICATE_B } from '../../support/certificates.ts';
import { recordMeasurement } from '../../support/guarantees.ts';
import { isMissing } from '../../support/programs/program.ts';
import {
  removeDirectory,
  suspendProcess,
  temporaryDirectory,
  waitUntil,
} from '../../support/server.ts';
import {
  agentFromNewAddress,
  newAddress,
  sendSequentially,
  sendThrough,
  statusesOf,
} from './gateway-process.ts';
import { installEnvoy, realEnvoy } from './real-gateways.ts';
import { type EnvoyConfig, filterOf, managerOf, printedRules, useRlsStack } from './rls-stack.ts';

const run = promisify(execFile);
const envoy = await realEnvoy();

const YEAR_S = 31_536_000;
const TYPE = 'type.googleapis.com/envoy.extensions.filters.http';

/** Sends a request over HTTP/2 without TLS, from an address without usage. */
function sendOverHttp2(
  port: number,
  count: number,
  headers: Record<string, string> = {},
): Promise<IncomingHttpHeaders[]> {
  const session = connectHttp2('http://127.0.0.1', {
    createConnection: () => connect({ host: '127.0.0.1', port, localAddress: newAddress() }),
  });
  const responses = Array.from({ length: count }, () => {
    return new Promise<IncomingHttpHeaders>((resolve, reject) => {
      const stream = session.request({ ':path': '/', ...headers });
      stream.on('response', resolve);
      stream.on('error', reject);
      stream.resume();
    });
  });
  return Promise.all(responses).finally(() => session.destroy());
}

describe.skipIf(envoy.isMissing)('Envoy with the printed configuration', () => {
  const stack = useRlsStack(
    envoy,
    { site: printedRules('site', 3), socket: printedRules('socket', 1) },
    { WEIR_RLS_HEADERS: 'ietf' },
  );

  test('allows as many requests as the limit, and tells the client its quota', async () => {
    const [port] = await stack.serve(await stack.printed('site'));
    const requests = Array.from({ length: 5 }, () => ({}));
    const responses = await sendSequentially(port, requests, agentFromNewAddress());
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 429]);
    const quotas = [3, 1_000].map((limit) => `${limit};w=${YEAR_S}`).join(', ');
    expect(responses[0].headers).toMatchObject({
      'x-application': 'yes',
      'x-ratelimit-limit': `3, ${quotas}`,
      'x-ratelimit-remaining': '2',
      'x-ratelimit-reset': expect.stringMatching(/^[1-9]\d*$/),
      'ratelimit-policy': `"site.masked_remote_address";q=3;w=${YEAR_S}, "site.route_all";q=1000;w=${YEAR_S}`,
    });
    expect(responses[0].headers).not.toHaveProperty('retry-after');
    expect(responses[3].headers).toMatchObject({
      'x-envoy-ratelimited': 'true',
      'x-ratelimit-remaining': '0',
      'retry-after': expect.stringMatching(/^[1-9]\d*$/),
    });
    expect(stack.application.requests).toHaveLength(3);

    const overHttp2 = await sendOverHttp2(port, 50);
    const allowed = overHttp2.filter(({ ':status': status }) => Number(status) === 200);
    expect(allowed).toHaveLength(3);
    const [denied] = await sendOverHttp2(port, 4, { 'content-type': 'application/grpc' }).then(
      (calls) => calls.filter((headers) => headers['grpc-status'] !== undefined),
    );
    expect(denied).toMatchObject({ ':status': 200, 'grpc-status': '8' });
  });

  test('accepts each form of it', async () => {
    const https = { isHttps: true, host: 'app.example.com', port: 443, path: '/shop' };
    const forms: Partial<RlsSetup>[] = [
      { onError: 'deny' },
      { service: { socket: stack.socket } },
      { service: { host: 'weir.default.svc', port: 8_081 } },
      { upstream: https, listen: { host: '[::]', port: 8_080 } },
    ];
    for (const form of forms) {
      const path = join(stack.directory, 'form.yaml');
      writeFileSync(path, stringify(await stack.printed('site', form)));
      const validate = ['--mode', 'validate', '--use-dynamic-base-id', '-c', path];
      const { stdout } = await run((await installEnvoy())!, validate);
      expect(stdout).toContain(`${path}' OK`);
    }
  });

  test('replaces quota headers of the application', async () => {
    const [port] = await stack.serve(await stack.printed('site'));
    const { headers } = await sendThrough(port, { path: '/limited' }, agentFromNewAddress());
    expect(headers['ratelimit-policy']).not.toContain('application');
  });

  test('calls the Unix socket', async () => {
    const [port] = await stack.serve(
      await stack.printed('socket', { service: { socket: stack.socket } }),
    );
    const responses = await sendSequentially(port, [{}, {}], agentFromNewAddress());
    expect(statusesOf(responses)).toEqual([200, 429]);
  });
});

/** The statuses of requests by h2load. */
async function flood(port: number, connections: number, streams?: number) {
  const protocol = streams === undefined ? ['--h1'] : ['-p', 'h2c', '-m', String(streams)];
  const size = ['-t', '1', '-n', String(FLOOD), '-c', String(connections)];
  const { stdout } = await run('h2load', [...protocol, ...size, `http://127.0.0.1:${port}/`]);
  const [, allowed, , denied] = /status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx/
    .exec(stdout)!
    .map(Number);
  return { allowed, denied };
}

const FLOOD = 30_000;
const LIMIT = 100;

describe.skipIf(envoy.isMissing || isMissing('h2load', '--version'))(
  'a flood through Envoy with failure_mode_deny: false',
  () => {
    const domains = ['flood-h1', 'flood-h2', 'flood-1-s', 'flood-20-ms'];
    const rules = domains.map((domain) => [domain, printedRules(domain, LIMIT)]);
    const stack = useRlsStack(envoy, Object.fromEntries(rules));

    test('does not exceed the limit with the printed timeout', { timeout: 120_000 }, async () => {
      const configs = await Promise.all(domains.map((domain) => stack.printed(domain)));
      filterOf(configs[2]).timeout = '1s';
      delete filterOf(configs[3]).timeout;
      const [http1, http2, ofOneSecond, ofDefault] = await stack.serve(...configs);
      const expected = { allowed: LIMIT, denied: FLOOD - LIMIT };
      expect(await flood(http1, 100)).toEqual(expected);
      expect(await flood(http2, 15, 100)).toEqual(expected);
      const { allowed: withOneSecond } = await flood(ofOneSecond, 15, 100);
      const { allowed: withDefault } = await flood(ofDefault, 15, 100);
      // weir has answered the calls that Envoy gave up, and still decides.
      expect((await sendThrough(http1)).status).toBe(429);
      const trials = `${FLOOD} requests of 1 500 HTTP/2 streams at a limit of ${LIMIT}`;
      const measured =
        `allowed with a timeout of 5 s, as printed: ${LIMIT}; of 1 s: ${withOneSecond}; of 20 ms,` +
        ` which Envoy has by default: ${withDefault}`;
      recordMeasurement('P1', 'flood through Envoy', trials, measured);
    });
  },
);

const CASES = `
domain: cases
allow_negative_hits: true
descriptors:
  - key: body
    rate_limit:
      unit: year
      requests_per_unit: 0
      raw_body: '{"error":"too many requests"}'
      content_type: application/problem+json
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 20 }
  - key: plan
    rate_limit: { unit: year, requests_per_unit: 1 }
  - key: connections
    rate_limit: { unit: year, requests_per_unit: 2 }
`;

/** A route of a configuration with rate limits of its own. */
function limitedRoute(path: string, rateLimits: object[]): EnvoyConfig {
  const { name, config } = perRoute(rateLimits);
  return {
    match: { prefix: path },
    route: { cluster: 'application' },
    typed_per_filter_config: { [name]: config },
  };
}

function perRoute(rate_limits: object[]) {
  const config = { '@type': `${TYPE}.ratelimit.v3.RateLimitPerRoute`, rate_limits };
  return { name: 'envoy.filters.http.ratelimit', config };
}

function counter(key: string) {
  return { actions: [{ generic_key: { descriptor_key: key, descriptor_value: 'one' } }] };
}

describe.skipIf(envoy.isMissing)('Envoy with rate limits of its routes', () => {
  const stack = useRlsStack(envoy, { cases: CASES });

  /** Starts Envoy with these routes, and with filters before that of the rate limits. */
  async function serve(routes: EnvoyConfig[], filters: object[] = []) {
    const config = await stack.printed('cases');
    const manager = managerOf(config);
    manager.http_filters.unshift(...filters);
    manager.route_config.virtual_hosts[0].routes = routes;
    const [port] = await stack.serve(config);
    return (path: string) => sendThrough(port, { path });
  }

  test('a denied client gets the body of the rule, with its content type', async () => {
    const send = await serve([limitedRoute('/', [counter('body')])]);
    expect(await send('/')).toMatchObject({
      status: 429,
      headers: { 'content-type': 'application/problem+json' },
      body: '{"error":"too many requests"}',
    });
  });

  test('a response costs what it says itself, and a refund returns tokens', async () => {
    const name = 'envoy.filters.http.header_to_metadata';
    const readsCost = {
      name,
      typed_config: {
        '@type': `${TYPE}.header_to_metadata.v3.Config`,
        response_rules: [
          {
            // The application responds with 11 bytes.
            header: 'content-length',
            on_header_present: { metadata_namespace: 'cost', key: 'tokens', type: 'NUMBER' },
          },
        ],
      },
    };
    const send = await serve(
      [
        limitedRoute('/refund', [
          { ...counter('tokens'), hits_addend: { number: 12, is_negative_hits: true } },
        ]),
        limitedRoute('/look', [{ ...counter('tokens'), hits_addend: { number: 0 } }]),
        limitedRoute('/', [
          { ...counter('tokens'), hits_addend: { number: 0 } },
          {
            ...counter('tokens'),
            apply_on_stream_done: true,
            hits_addend: { format: '%DYNAMIC_METADATA(cost:tokens)%' },
          },
        ]),
      ],
      [readsCost],
    );
    const remaining = async () => (await send('/look')).headers['x-ratelimit-remaining'];
    expect((await send('/')).status).toBe(200);
    await waitUntil('the response is counted', async () => (await remaining()) === '9');
    expect((await send('/')).status).toBe(200);
    await waitUntil('the response is counted', async () => (await remaining()) === '0');
    expect((await send('/')).status).toBe(429);
    // 22 of 20 tokens are used, and 12 are returned.
    const refund = await send('/refund');
    expect([refund.status, refund.headers['x-ratelimit-remaining']]).toEqual([200, '10']);
    expect((await send('/')).status).toBe(200);
  });

  test('metadata of the request overrides the limit of the rule', async () => {
    const value = { limit: { requests_per_unit: 7, unit: 'DAY' } };
    const setsPlan = {
      name: 'envoy.filters.http.set_metadata',
      typed_config: {
        '@type': `${TYPE}.set_metadata.v3.Config`,
        metadata: [{ metadata_namespace: 'plan', value }],
      },
    };
    const metadata_key = { key: 'plan', path: [{ key: 'limit' }] };
    const overridden = { ...counter('plan'), limit: { dynamic_metadata: { metadata_key } } };
    const send = await serve([limitedRoute('/', [overridden])], [setsPlan]);
    const { headers } = await send('/');
    expect(headers['x-ratelimit-limit']).toBe('7, 7;w=86400');
    expect(headers['x-ratelimit-remaining']).toBe('6');
  });

  test('the network filter closes connections over the limit', async () => {
    const config = await stack.printed('cases');
    const { rate_limit_service, timeout } = filterOf(config);
    const [{ filters }] = config.static_resources.listeners[0].filter_chains;
    managerOf(config).http_filters.shift();
    filters.unshift({
      name: 'envoy.filters.network.ratelimit',
      typed_config: {
        '@type': 'type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit',
        stat_prefix: 'connections',
        domain: 'cases',
        descriptors: [{ entries: [{ key: 'connections', value: 'one' }] }],
        failure_mode_deny: true,
        timeout,
        rate_limit_service,
      },
    });
    const [port] = await stack.serve(config);
    const outcomes: string[] = [];
    for (let i = 0; i < 4; i++) {
      const outcome = await new Promise<string>((resolve) => {
        const socket = connect(port, '127.0.0.1');
        let received = '';
        socket.on('data', (data) => {
          received += data;
          if (received.includes('\r\n')) socket.destroy();
        });
        socket.on('error', () => {});
        socket.on('close', () => resolve(received.slice(0, 15)));
        socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
      });
      outcomes.push(outcome);
    }
    // The connection of the test that waited for the listener may have counted.
    expect(outcomes[0]).toBe('HTTP/1.1 200 OK');
    expect(outcomes.slice(2)).toEqual(['', '']);
  });
});

describe.skipIf(envoy.isMissing)('Envoy over TLS', () => {
  const directory = temporaryDirectory();
  afterAll(() => removeDirectory(directory));
  const paths = Object.fromEntries(
    Object.entries({ server: CERTIFICATE_A, client: CERTIFICATE_B }).flatMap(([name, pair]) => {
      return (['cert', 'key'] as const).map((part) => {
        const path = join(directory, `${name}.${part}`);
        writeFileSync(path, pair[part]);
        return [`${name}.${part}`, path];
      });
    }),
  );
  const stack = useRlsStack(
    envoy,
    { site: printedRules('site', 1) },
    {
      WEIR_RLS_TLS_CERT: paths['server.cert'],
      WEIR_RLS_TLS_KEY: paths['server.key'],
      WEIR_RLS_TLS_CLIENT_CA: paths['client.cert'],
    },
  );

  test('calls weir with a certificate of the client CA only', async () => {
    const ownCertificate = {
      certificate_chain: { filename: paths['client.cert'] },
      private_key: { filename: paths['client.key'] },
    };
    const serveWith = async (tls_certificates: object[]) => {
      const config = await stack.printed('site');
      const trusted_ca = { filename: paths['server.cert'] };
      config.static_resources.clusters[0].transport_socket = {
        name: 'envoy.transport_sockets.tls',
        typed_config: {
          '@type':
            'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext',
          common_tls_context: { tls_certificates, validation_context: { trusted_ca } },
        },
      };
      const [port] = await stack.serve(config);
      return sendSequentially(port, [{}, {}], agentFromNewAddress());
    };
    expect(statusesOf(await serveWith([ownCertificate]))).toEqual([200, 429]);
    const withoutCertificate = await serveWith([]);
    expect(statusesOf(withoutCertificate)).toEqual([200, 200]);
    expect(withoutCertificate[0].headers).not.toHaveProperty('x-ratelimit-limit');
  });
});

describe.skipIf(envoy.isMissing)('Envoy with a second filter for a weir in shadow mode', () => {
  const stack = useRlsStack(envoy, { site: printedRules('site', 3) });
  const shadow = useRlsStack(
    envoy,
    { site: printedRules('site', 2) },
    { WEIR_RLS_SHADOW_MODE: 'true' },
  );

  test('obeys the first service, and weir counts what it would have denied', async () => {
    const [config, other] = [await stack.printed('site'), await shadow.printed('site')];
    const [cluster] = other.static_resources.clusters;
    config.static_resources.clusters.push({ ...cluster, name: 'weir-shadow' });
    const grpc_service = { envoy_grpc: { cluster_name: 'weir-shadow' } };
    managerOf(config).http_filters.unshift({
      name: 'weir.shadow',
      typed_config: {
        '@type': `${TYPE}.ratelimit.v3.RateLimit`,
        domain: 'site',
        timeout: '1s',
        rate_limit_service: { transport_api_version: 'V3', grpc_service },
      },
    });
    const [port] = await stack.serve(config);
    const requests = Array.from({ length: 5 }, () => ({}));
    const responses = await sendSequentially(port, requests, agentFromNewAddress());
    expect(statusesOf(responses)).toEqual([200, 200, 200, 429, 429]);
    const overLimit =
      'weir_rls_hits_total{limit="site.masked_remote_address",result="over_limit"} 3';
    await waitUntil('the hits are in the metrics', async () => {
      const metrics = await fetch(`${shadow.weir.adminUrl}/metrics`);
      return (await metrics.text()).includes(`${overLimit}\n`);
    });
  });
});

describe.skipIf(envoy.isMissing)('while weir does not respond, Envoy', () => {
  const stack = useRlsStack(envoy, { site: printedRules('site', 1_000_000, 1_000_000) });

  async function serveBoth(): Promise<[allowing: number, denying: number]> {
    const configs = [await stack.printed('site'), await stack.printed('site', { onError: 'deny' })];
    const [allowing, denying] = await stack.serve(...configs);
    return [allowing, denying];
  }

  const isDecided = async (port: number) => {
    const { headers } = await sendThrough(port);
    return headers['x-ratelimit-limit'] !== undefined;
  };

  test('decides by failure_mode_deny, whether weir is stopped or unresponsive', async () => {
    const ports = await serveBoth();
    const statuses = async () => statusesOf(await Promise.all(ports.map((it) => sendThrough(it))));
    expect(await statuses()).toEqual([200, 200]);
    await suspendProcess(stack.weir);
    expect(await statuses()).toEqual([200, 429]);
    stack.weir.child.kill('SIGCONT');
    for (const port of ports) await waitUntil('weir responds', () => isDecided(port));
    await stack.weir.stop();
    expect(await statuses()).toEqual([200, 429]);
    await stack.startWeir();
    for (const port of ports) await waitUntil('weir responds', () => isDecided(port));
    expect(await statuses()).toEqual([200, 200]);
  });

  test('loses only calls of the time without weir, and weir keeps its counts', async () => {
    const [, denying] = await serveBoth();
    const results = { decided: 0, lost: 0 };
    let isRunning = true;
    const address = newAddress();
    const remainingAfter = async () => {
      const { headers } = await sendThrough(denying, {}, agentFromNewAddress(address));
      return Number(headers['x-ratelimit-remaining']);
    };
    // The rule for all clients has fewer tokens left.
    const before = await remainingAfter();
    const clients = Array.from({ length: 8 }, async () => {
      const agent = agentFromNewAddress(address);
      while (isRunning) {
        const { headers } = await sendThrough(denying, {}, agent);
        if (headers['x-ratelimit-limit'] === undefined) results.lost++;
        else results.decided++;
      }
      agent.destroy();
    });
    await waitUntil('requests are decided', () => results.decided > 200);
    const startMs = Date.now();
    await stack.weir.stop();
    const stoppedMs = Date.now() - startMs;
    await stack.startWeir();
    const { decided } = results;
    await waitUntil('requests are decided again', () => results.decided > decided);
    const withoutMs = Date.now() - startMs;
    await waitUntil('more requests are decided', () => results.decided > decided + 200);
    isRunning = false;
    await Promise.all(clients);
    const counted = before - (await remainingAfter()) - 1;
    expect(counted).toBeGreaterThanOrEqual(results.decided);
    expect(counted).toBeLessThanOrEqual(results.decided + results.lost);
    recordMeasurement(
      'P6',
      'restart of weir behind Envoy',
      `${results.decided} decided calls of 8 clients`,
      `stopped after ${stoppedMs} ms, decides again after ${withoutMs} ms; ${results.lost} calls` +
        ` lost, of which ${counted - results.decided} were counted`,
    );
  });
});
