/** The texts and the examples of GET /v1/ratelimits.listNamespaces. */

import { badRequestV1, NAMESPACE_ID, ok } from '../../texts/examples.ts';
import { documented } from '../../texts/operation-texts.ts';
import { LACKS_READ, PAGES } from '../../texts/sentences.ts';
import { listNamespaces, response } from './list-namespaces.ts';

export const listNamespacesTexts = documented(listNamespaces, response, {
  tag: 'Namespaces and policies',
  summary: 'List namespaces',
  description: [
    `Lists the namespaces that the key may read, with their ids. ${PAGES} This is the order in ` +
      'which weir has stored them. Of namespaces whose first checks arrive within the same ' +
      'milliseconds, any may be the first. The order stays the same from then on.',
    'A permission in one namespace is sufficient; other namespaces are then left out.',
  ],
  forbidden: LACKS_READ,
  examples: {
    page: {
      summary: 'The first page of one namespace, of two',
      request: { limit: 1 },
      ...ok({ namespaces: [{ id: NAMESPACE_ID, name: 'login' }], cursor: '1', total: 2 }),
    },
    invalid: {
      summary: 'A cursor that no page had',
      request: { cursor: 'next' },
      ...badRequestV1('"cursor" must be the cursor of the previous page; got "next"'),
    },
  },
});
