/** Applications with express and fastify, and the modules that weir prints for them. */

import { describe } from 'vitest';
import { defineGatewayTests } from './gateway-cases.ts';
import { realExpress, realFastify } from './real-gateways.ts';

describe.each([realExpress, realFastify])('$name', (application) => {
  defineGatewayTests(application);
});
