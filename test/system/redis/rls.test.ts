/** The cases of the rate limit service, with counters in a real Redis. */

import { keepOnlyEngineCases } from '../../support/engine-modes.ts';

process.env.TEST_ENGINE = 'redis';
await import('../../rls/rate-limit-service.test.ts');
keepOnlyEngineCases();
