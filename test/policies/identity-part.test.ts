/** Texts that are no part of an identity. */

import { expect, test } from 'vitest';
import { readPart } from '../../src/policies/identity-part.ts';

test.each([
  ...['X-Forwarded-For', 'x-real-ip', 'Forwarded', 'host', 'x-weir-key', 'Connection', 'TE'].map(
    (name) => `header:${name}`,
  ),
  ...['header:upgrade', 'header:Proxy-Authorization', 'header:a b', 'header:', 'header'],
  ...['', 'IP', 'ip ', 'cookie:a;b', 'cookie:'],
])('%j is no part: gateways set such headers, or do not forward them', (text) => {
  expect(readPart(text)).toBeUndefined();
});
