import { describe, expect, test } from 'vitest';
import { GatewayReaders } from '../../src/policies/gateway-readers.ts';
import { readPolicies } from '../../src/policies/policy.ts';

const SKIP = ['preflight', '/healthz', '/v1.0/a_b~c/', '/'];
const ORIGIN = { origin: 'https://app.example' };
const PREFLIGHT = { ...ORIGIN, 'access-control-request-method': 'PUT' };

interface Request {
  method?: string;
  target?: string;
  headers?: Record<string, string>;
}

/** Whether weir skips a request, whose method and target the gateway sends in its own way. */
function skips(gateway: 'nginx' | 'envoy', request: Request, skip = SKIP): boolean | undefined {
  const { method = 'GET', target = '/other', headers = {} } = request;
  const isEnvoy = gateway === 'envoy';
  const sent: Record<string, string> = isEnvoy
    ? headers
    : { ...headers, 'x-forwarded-method': method, 'x-forwarded-uri': target };
  const [policy] = readPolicies({ login: { gateway, limit: 1, duration: 1_000, skip } });
  const { skip: reader } = new GatewayReaders(policy).forQuery(undefined);
  return reader?.skips({
    method: isEnvoy ? method : 'GET',
    // uWebSockets.js removes the query. Envoy appends the path to a prefix with a slash.
    pathSuffix: isEnvoy ? `/${target.split('?')[0]}` : '',
    header: (name) => sent[name] ?? '',
    headerCount: () => 1,
  });
}

describe.each(['nginx', 'envoy'] as const)('of a policy for %s', (gateway) => {
  test.each<[boolean, Request]>([
    [true, { method: 'OPTIONS', headers: PREFLIGHT }],
    [false, { method: 'OPTIONS' }],
    [false, { method: 'OPTIONS', headers: ORIGIN }],
    [false, { method: 'OPTIONS', headers: { ...PREFLIGHT, origin: '' } }],
    [false, { method: 'OPTIONS', headers: { 'access-control-request-method': 'PUT' } }],
    [false, { method: 'options', headers: PREFLIGHT }],
    [false, { method: 'POST', headers: PREFLIGHT }],
    [false, { method: 'GET', headers: PREFLIGHT }],
  ])('only a preflight of CORS is skipped: %s for %j', (expected, request) => {
    expect(skips(gateway, request)).toBe(expected);
    expect(skips(gateway, request, ['/healthz'])).toBe(false);
  });

  test.each([
    ...['/healthz', '/healthz?a=/b/../c', '/%68ealthz', '/healt%68%7A'],
    ...['/', '/?a', '/v1.0/a_b~c/', '/v1%2e0/a%5Fb%7Ec/'],
  ])('the path %s is skipped', (target) => {
    expect(skips(gateway, { target })).toBe(true);
    expect(skips(gateway, { target }, ['preflight'])).toBe(false);
  });

  test.each([
    ...['/healthz/', '/HEALTHZ', '/healthz/x', '/healthz;x', '/v1.0/a_b~c'],
    // An application may take each of these for another path.
    ...['//healthz', '/healthz/.', '/./healthz', '/x/../healthz', '/%2e/healthz', '/healthz//'],
    ...[
      '/login/..%2fhealthz',
      '/login%2f..%2fhealthz',
      '/healthz%2f',
      '/healthz%00',
      '/%25healthz',
    ],
    ...['/login\\..\\healthz', '/healthz#', '/healthz%3f', '/healthz%', '/%2568ealthz', '//'],
    ...['http://host/healthz', '*', `/${'./'.repeat(2_000)}healthz`],
  ])('the path %j is checked', (target) => {
    expect(skips(gateway, { target })).toBe(false);
  });
});

test.each(['', 'healthz'])('the target %j, which is no path, is checked', (target) => {
  expect(skips('nginx', { target })).toBe(false);
});

test('without skip nothing is read that could skip a request', () => {
  expect(skips('nginx', { method: 'OPTIONS', headers: PREFLIGHT }, [])).toBeUndefined();
});
