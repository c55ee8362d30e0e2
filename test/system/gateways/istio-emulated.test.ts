/** Istio, which cannot run here: an emulation reads the printed configuration. */

import { describe, expect, test } from 'vitest';
import { istio } from '../../../src/commands/gateways/istio.ts';
import { defineEmulatorTests, setupOf, statusesAfter, weirAt } from './emulator-cases.ts';
import { emulateIstio } from './istio-emulator.ts';

const GATEWAY = { gateway: 'istio', print: istio, emulate: emulateIstio } as const;

describe('behind Istio', () => {
  defineEmulatorTests(GATEWAY);

  test('a check has the method and the path of the client, and no body', () => {
    const emulator = emulateIstio(istio(setupOf('istio', {}, weirAt(7_071))));
    const check = emulator.checkRequest({
      method: 'PUT',
      target: '/a//b/../c%2F?d=/e',
      headers: [
        ['User-Agent', 'curl/8'],
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-For', '192.0.2.67'],
      ],
    });
    expect(check.toString().split('\r\n')).toEqual([
      'PUT /v1/check/login//a//b/../c%2F?d=/e HTTP/1.1',
      'host: shop.example',
      'content-length: 0',
      'x-forwarded-for: 192.0.2.66,192.0.2.67,198.51.100.1',
      'x-envoy-internal: true',
      'x-envoy-expected-rq-timeout-ms: 5000',
      '',
      '',
    ]);
  });

  test.each([
    ['503 Down\r\nContent-Length: 4\r\n\r\ndown', [200, 429]],
    ['204 No Content\r\n\r\n', [204, 204]],
    ['401 Unauthorized\r\nContent-Length: 0\r\n\r\n', [401, 401]],
  ])('a 5xx is a failure; every other status except 200 denies: %s', async (response, expected) => {
    expect(await statusesAfter(response, GATEWAY)).toEqual(expected);
  });
});
