/** Applications with express and fastify, and the modules that weir prints for them. */

import { describe } from 'vitest';
import { defineGatewayTests } from '../support/gateway-cases.ts';
import { realExpress, realFastify } from '../support/real-gateways.ts';

describe.each([realExpress, realFastify])('$name', (application) => {
  defineGatewayTests({ ...application, isProxy: false });
});
