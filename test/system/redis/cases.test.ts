/** The cases of engines and of the API, with counters in a real Redis. */

import { keepOnlyEngineCases } from '../../support/engine-modes.ts';

process.env.TEST_ENGINE = 'redis';
await import('../../engine/engine.test.ts');
await import('../../api/algorithm.test.ts');
await import('../../api/analytics.test.ts');
await import('../../api/corrections.test.ts');
await import('../../api/explain.test.ts');
await import('../../api/limit.test.ts');
await import('../../api/namespaces.test.ts');
await import('../../api/override-usage.test.ts');
await import('../../api/v2.test.ts');
await import('../../server/events.test.ts');
await import('../../server/gateway-checks.test.ts');
await import('../../server/multi-limit.test.ts');
await import('../../server/pipelining.test.ts');
keepOnlyEngineCases();
