import { expect, test } from 'vitest';
import { readPolicies } from '../../src/policies/policy.ts';
import { policyWarnings } from '../../src/policies/warnings.ts';

const warningsFor = (...identify: string[]) => {
  return policyWarnings(
    readPolicies({ api: { gateway: 'nginx', limit: 1, duration: 1_000, identify } }),
  );
};

test('a header that holds an address, compared as text, is a warning that names the right part', () => {
  expect(warningsFor('header:CF-Connecting-IP', 'path')).toEqual([
    'policy "api": "header:CF-Connecting-IP" in "identify" compares an address as text, so a client' +
      ' has a new counter for each of its IPv6 addresses; use "ip:header:CF-Connecting-IP"',
  ]);
  for (const name of ['true-client-ip', 'x-client-ip', 'fastly-client-ip']) {
    expect(warningsFor(`header:${name}`)).toHaveLength(1);
  }
  expect(warningsFor('header:true-client-ip', 'header:x-envoy-external-address')).toHaveLength(2);
});

test('no other part is a warning', () => {
  expect(warningsFor('ip', 'header:x-api-key', 'cookie:client-ip', 'method')).toEqual([]);
  expect(warningsFor('ip:header:cf-connecting-ip')).toEqual([]);
});

// The names of the others are reserved, so `header:` does not accept them.
test('the part that a warning names is valid for each header that holds an address', () => {
  for (const name of ['cf-connecting-ip', 'x-client-ip', 'X-Real-IP']) {
    expect(() => warningsFor(`ip:header:${name}`)).not.toThrow();
  }
  for (const part of ['ip:header:x-forwarded-for', 'ip:header:host', 'ip:header:', 'ip:cookie:a']) {
    expect(() => warningsFor(part)).toThrow('"identify" must be ip, ip:header:<name>, method');
  }
});
