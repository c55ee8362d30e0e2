/** The texts and the examples of POST /v1/ratelimits.deleteNamespace. */

import { REMOVED_OVERRIDES_MAX } from '../../../core/constants.ts';
import { conflictV1, NAMESPACE_REQUIRED, notFoundV1, ok } from '../../texts/examples.ts';
import { numberText } from '../../texts/number-text.ts';
import { documented } from '../../texts/operation-texts.ts';
import { requireNamespace } from '../../texts/request-rules.ts';
import { deleteNamespace, response } from './delete-namespace.ts';

export const deleteNamespaceTexts = documented(deleteNamespace, response, {
  tag: 'Namespaces and policies',
  summary: 'Delete a namespace',
  description: [
    'Deletes a namespace with its overrides and blocks, its counters and its figures. This ' +
      'cannot be undone. The response is sent when the deletion is durable and no check that ' +
      'arrives later uses the namespace. Overrides of a pattern of namespaces stay.',
    `${numberText(REMOVED_OVERRIDES_MAX)} overrides or more are deleted before the namespace, ` +
      'in several transactions, each with an entry `overrides.delete` in the audit log. If ' +
      'weir ends or the request fails meanwhile, the namespace stays with the rest: repeat ' +
      'the request.',
    'A later check with the same name creates another namespace, if its key may. It has a new ' +
      'id, counters and figures that begin at 0, and no overrides of its own. Permissions for ' +
      'the old id stay in their keys, and grant nothing.',
    'A client that repeats a request must send the id: if another namespace has the name by ' +
      'then, a request with the name deletes that one. In the same way, a refund with the name ' +
      'returns tokens of the namespace that has the name now, also for a check of the deleted ' +
      'one in the same window.',
    'A namespace with a policy in the configuration file cannot be deleted, with a shared ' +
      'registry in that of any machine. The namespace `default` can.',
    'A check that was being decided when the namespace was deleted still gets its response. ' +
      'The memory of the counters is freed some seconds after the response. With ' +
      '`WEIR_ENGINE=redis` they stay in Redis until their windows end, and no check finds ' +
      'them. Each machine deletes its own figures.',
  ],
  notFound: 'The namespace does not exist.',
  conflict: 'A configuration file has a policy for the namespace.',
  rules: requireNamespace,
  examples: {
    deleted: {
      summary: 'Deleted',
      request: { namespaceName: 'old' },
      ...ok({ overrides: 1 }),
    },
    noNamespace: {
      summary: 'Neither namespaceId nor namespaceName',
      request: {},
      ...NAMESPACE_REQUIRED,
    },
    unknown: {
      summary: 'The namespace does not exist',
      request: { namespaceName: 'nowhere' },
      ...notFoundV1('there is no namespace "nowhere"'),
    },
    policy: {
      summary: 'The namespace has a policy',
      request: { namespaceName: 'login' },
      ...conflictV1(
        'the configuration file has the policy of the namespace "login": remove it first',
      ),
    },
  },
});
