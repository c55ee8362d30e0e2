/** Istio, which cannot run here: an emulation reads the printed configuration. */

import { describe, expect, test } from 'vitest';
import { istio } from '../../../src/commands/gateways/istio.ts';
import { defineGatewayTests } from './gateway-cases.ts';
import { emulatedGateway } from './gateway-emulator.ts';
import { useGatewayStack } from './gateway-stack.ts';
import { emulateIstio } from './istio-emulator.ts';

const ISTIO = emulatedGateway('istio', istio, emulateIstio);
/** A namespace and a header with each special character. */
const ODD = '~a.B:c@d-e_';
const ODD_HEADER = "x-!#$%&'*+.^_`|~-0";

describe('behind Istio', () => {
  defineGatewayTests(ISTIO);
});

describe('Istio', () => {
  const stack = useGatewayStack(ISTIO, { [ODD]: { limit: 1, identify: [`header:${ODD_HEADER}`] } });

  test('sends a check with the method and the path of the client, and no body', async () => {
    const emulator = emulateIstio(istio(await stack.setupOf(ODD)));
    const check = emulator.checkRequest({
      method: 'PUT',
      target: '/a//b/../c%2F?d=/e',
      remoteAddress: '198.51.100.1',
      headers: [
        ['Host', 'shop.example'],
        ['User-Agent', 'curl/8'],
        ['Content-Length', '5'],
        ['X-Forwarded-For', '192.0.2.66'],
        ['X-Forwarded-For', '192.0.2.67'],
        [ODD_HEADER.toUpperCase(), 'one'],
      ],
    });
    expect(check?.toString().split('\r\n')).toEqual([
      `PUT /v1/check/${ODD}//a//b/../c%2F?d=/e HTTP/1.1`,
      'host: shop.example',
      'content-length: 0',
      `${ODD_HEADER}: one`,
      'x-envoy-internal: true',
      'x-envoy-expected-rq-timeout-ms: 5000',
      '',
      '',
    ]);
  });
});
