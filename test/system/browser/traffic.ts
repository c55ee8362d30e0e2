/**
 * Checks in 20 namespaces, all with their limits in the request. One identifier is denied far more
 * often than any other. One customer is denied once, in one of its namespaces, and no ranking shows
 * it.
 */

import { LONGEST_WINDOW_MS } from '../../support/http.ts';
import type { TestServer } from '../../support/test-server.ts';

const NAMESPACES = [
  ...['api.public', 'api.internal', 'login', 'login.otp', 'password.reset', 'signup', 'search'],
  ...['search.autocomplete', 'checkout', 'payments.intents', 'payments.refunds', 'uploads'],
  ...['webhooks', 'email.send', 'sms.send', 'exports.csv', 'graphql', 'ai.completions'],
  ...['mobile.sync', 'partner.feed'],
];

export const ABUSER = { namespace: 'login', identifier: '203.0.113.9', limit: 5, denied: 97 };
export const CUSTOMER = {
  ...{ namespace: 'payments.refunds', identifier: 'acct:northwind', limit: 3, denied: 1 },
  allowedIn: ['api.public', 'checkout', 'webhooks'],
};
/** Two in each namespace, which are denied more often than the customer, and spend more. */
const OTHERS = { perNamespace: 2, limit: 5, denied: 7 };

export async function sendTraffic(server: TestServer): Promise<void> {
  const send = async (namespace: string, identifier: string, limit: number, checks: number) => {
    const check = { namespace, identifier, limit, duration: LONGEST_WINDOW_MS };
    for (let i = 0; i < checks; i++) await server.check(check);
  };
  // First: all denials may be in one second, of which few are among the recent decisions.
  const { identifier, allowedIn, ...own } = CUSTOMER;
  for (const namespace of allowedIn) await send(namespace, identifier, own.limit, 1);
  await send(own.namespace, identifier, own.limit, own.limit + own.denied);
  const { limit, denied } = OTHERS;
  for (let other = 0; other < OTHERS.perNamespace; other++) {
    for (const [i, namespace] of NAMESPACES.entries()) {
      await send(namespace, `user_${8_200 + 100 * other + i}`, limit, limit + denied);
    }
  }
  await send(ABUSER.namespace, ABUSER.identifier, ABUSER.limit, ABUSER.limit + ABUSER.denied);
}
