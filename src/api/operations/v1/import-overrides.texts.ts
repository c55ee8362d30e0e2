/** The texts and the examples of POST /v1/ratelimits.importOverrides. */

import { badRequestV1, NO_NAMESPACE_ID, NO_SUCH_ID, notFoundV1, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { describeItems, requireNamespace } from '../../texts/request-rules.ts';
import { CREATES_NAMESPACE, lacksForItem } from '../../texts/sentences.ts';
import { importOverrides, itemValidator, response } from './import-overrides.ts';

export const importOverridesTexts = documented(importOverrides, response, {
  tag: 'Overrides',
  summary: 'Import overrides',
  description: [
    'Sets many overrides, all or none. Each override has the fields of ' +
      '`ratelimits.setOverride`. An import also accepts identifiers of 1 or 2 characters and a ' +
      'limit of 0, as v2 does.',
    'An import deletes no override. The same import again changes and writes nothing.',
    'An `expires` that is not in the future rejects the import. So leave out the overrides of ' +
      'an older export that have ended.',
    CREATES_NAMESPACE,
  ],
  forbidden: lacksForItem('overrides[0]', 'set_override'),
  notFound:
    'A namespace does not exist. The request names it by an id, or the key lacks the ' +
    'permission to create it.',
  rules: (schema) => describeItems(schema, 'overrides', requireNamespace(itemValidator.schema)),
  examples: {
    imported: {
      summary: 'Two new overrides',
      request: {
        overrides: [
          { namespaceName: 'api', identifier: 'vip_*', limit: 100, duration: 60_000 },
          { namespaceName: 'api', identifier: 'abuser', limit: 0, duration: 60_000 },
        ],
      },
      ...ok({ created: 2, updated: 0, unchanged: 0, dryRun: false }),
    },
    dryRun: {
      summary: 'Only validate and count',
      request: {
        overrides: [{ namespaceName: 'api', identifier: 'vip_*', limit: 200, duration: 60_000 }],
        dryRun: true,
      },
      ...ok({ created: 0, updated: 1, unchanged: 0, dryRun: true }),
    },
    invalid: {
      summary: 'The first override is invalid',
      request: { overrides: [{ namespaceName: 'api', identifier: 'vip_*', limit: 100 }] },
      ...badRequestV1(
        'overrides[0]: "duration" is required: an integer number of milliseconds from 1000 to ' +
          '3155760000000',
      ),
    },
    unknownNamespace: {
      summary: 'No namespace has this id',
      request: {
        overrides: [
          { namespaceId: NO_NAMESPACE_ID, identifier: 'vip_*', limit: 1, duration: 60_000 },
        ],
      },
      ...notFoundV1(`overrides[0]: ${NO_SUCH_ID}`),
    },
  },
});
