/** The cases of engines and of the API, with counters in a real Redis. */

import { keepOnlyEngineCases } from '../../support/engine-modes.ts';

process.env.TEST_ENGINE = 'redis';
await import('../../engine/engine.test.ts');
await import('../../api/operations/algorithm.test.ts');
await import('../../api/operations/analytics.test.ts');
await import('../../api/operations/corrections.test.ts');
await import('../../api/operations/v1/explain.test.ts');
await import('../../api/operations/v1/limit.test.ts');
await import('../../api/operations/namespaces.test.ts');
await import('../../api/operations/override-usage.test.ts');
await import('../../api/operations/v2.test.ts');
await import('../../server/events.test.ts');
await import('../../server/gateway-checks.test.ts');
await import('../../server/holds.test.ts');
await import('../../server/multi-limit.test.ts');
await import('../../server/pipelining.test.ts');
await import('../../server/repeatable-requests.test.ts');
keepOnlyEngineCases();
