/** The texts and the examples of GET /v1/ratelimits.exportOverrides. */

import { ok, PAGE_TOO_LARGE } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { PAGES } from '../../texts/sentences.ts';
import { exportOverrides, response } from './export-overrides.ts';

export const exportOverridesTexts = documented(exportOverrides, response, {
  tag: 'Overrides',
  summary: 'Export all overrides',
  description: [
    `Lists the overrides of all namespaces, in the format of an import. ${PAGES}`,
    'An override of a namespace whose name contains `*` has `namespaceId` instead of ' +
      '`namespaceName`.',
  ],
  examples: {
    page: {
      summary: 'The only page',
      request: {},
      ...ok({
        overrides: [
          {
            namespaceName: 'email.send',
            identifier: 'vip_*',
            limit: 100,
            duration: 60_000,
            async: false,
          },
        ],
        total: 1,
      }),
    },
    invalid: {
      summary: 'A page that is too large',
      request: { limit: 1_001 },
      ...PAGE_TOO_LARGE(1_000),
    },
  },
});
