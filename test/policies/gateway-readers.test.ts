import { describe, expect, test } from 'vitest';
import { GatewayReaders } from '../../src/policies/gateway-readers.ts';
import type { RequestAttributes } from '../../src/policies/identifier.ts';
import { readPolicies } from '../../src/policies/policy.ts';

const readersFor = (gateway: unknown) => {
  const fields = { gateway, limit: 1, duration: 1_000, identify: ['method', 'path'] };
  return new GatewayReaders(readPolicies({ login: fields })[0]);
};

/** A check on which the parts of Envoy and those of the other gateways differ. */
const REQUEST: RequestAttributes = {
  method: 'GET',
  pathSuffix: '/appended',
  header: (name) => ({ 'x-forwarded-method': 'PUT', 'x-forwarded-uri': '/sent' })[name] ?? '',
  headerCount: () => 1,
};
const ENVOY = 'GET|/appended';
const OTHERS = 'PUT|/sent';

/** The identifier of a check at this address: a query, or a path behind the namespace. */
function identifierAt(gateway: unknown, address: string | undefined): string | undefined {
  const readers = readersFor(gateway);
  const reader = address?.startsWith('/') ? readers.forPath() : readers.forQuery(address);
  return reader.identifier.read(REQUEST);
}

describe('the reader of a check', () => {
  test.each([
    ['nginx', undefined, OTHERS],
    ['nginx', '', OTHERS],
    ['nginx', 'gateway=nginx', OTHERS],
    [['nginx'], undefined, OTHERS],
    ['envoy', undefined, ENVOY],
    ['envoy', 'gateway=envoy', ENVOY],
    ['envoy', '/', ENVOY],
    ['istio', '/', ENVOY],
    [['nginx', 'envoy'], 'gateway=nginx', OTHERS],
    [['nginx', 'envoy'], 'gateway=envoy', ENVOY],
    [['nginx', 'envoy'], '/', ENVOY],
    [['caddy', 'istio', 'nginx'], '/', ENVOY],
  ])('of a policy for %j at the address %j trusts what that gateway sets', (gateway, at, read) => {
    expect(identifierAt(gateway, at)).toBe(read);
  });

  test('of a policy with one gateway ignores a query that names no gateway', () => {
    // Gateways configured by hand may append the query of the client.
    for (const query of [
      'a',
      'a=gateway',
      'Gateway=envoy',
      'xgateway=envoy',
      '&',
      '%',
      'x'.repeat(9_000),
    ]) {
      expect([query, identifierAt('caddy', query)]).toEqual([query, OTHERS]);
    }
  });

  const LIST = ['nginx', 'envoy'];
  test.each<[string, unknown, string | undefined]>([
    ['no name, for a list', LIST, undefined],
    ['an empty query, for a list', LIST, ''],
    ['another parameter, for a list', LIST, 'a=b'],
    ['a gateway that the list lacks', LIST, 'gateway=caddy'],
    ['a gateway that the policy does not serve', 'nginx', 'gateway=envoy'],
    ['no gateway', 'nginx', 'gateway='],
    ['a gateway without a name', 'nginx', 'gateway'],
    ['an unknown gateway', 'nginx', 'gateway=apache'],
    ['a gateway in upper case', LIST, 'gateway=NGINX'],
    ['a name of Object.prototype', LIST, 'gateway=constructor'],
    ['a repeated parameter', LIST, 'gateway=nginx&gateway=nginx'],
    ['a second gateway', LIST, 'gateway=nginx&gateway=envoy'],
    ['a second gateway, for one', 'nginx', 'gateway=nginx&gateway=envoy'],
    ['another parameter before', LIST, 'a=b&gateway=nginx'],
    ['another parameter behind', LIST, 'gateway=nginx&a=b'],
    ['another parameter behind, for one', 'nginx', 'gateway=nginx&'],
    ['an escaped name of the parameter', 'nginx', 'gatew%61y=envoy'],
    ['an escaped gateway', LIST, 'gateway=ngin%78'],
    ['a question mark behind', LIST, 'gateway=nginx?a'],
    ['a path, for a list without Envoy', ['nginx', 'caddy'], '/'],
    ['a path, for another gateway', 'nginx', '/a'],
  ])('does not exist for an address with %s', (_fault, gateway, address) => {
    expect(() => identifierAt(gateway, address)).toThrow(
      expect.objectContaining({
        code: 'NOT_FOUND',
        message: expect.stringMatching(/^the policy for the namespace "login" serves nginx\b/),
      }),
    );
  });

  test('an error names what the policy serves and what was received', () => {
    const rule = 'the query of a check must be gateway=<name> with one of these names';
    const serves = 'the policy for the namespace "login" serves nginx, envoy';
    const errorOf = (address: string | undefined) => () =>
      identifierAt(['envoy', 'nginx'], address);
    expect(errorOf('gateway=caddy')).toThrow(`${serves}; ${rule}; got "gateway=caddy"`);
    expect(errorOf(undefined)).toThrow(`${serves}; ${rule}; got no query`);
    expect(errorOf('x'.repeat(500))).toThrow('got a text of 500 characters');
    expect(() => identifierAt('nginx', '/a')).toThrow(
      'serves nginx; a check with a path behind the namespace comes from envoy or istio',
    );
  });
});
