/**
 * The proxy in front of the dashboard that signs in users. Each of its requests has the name of the
 * user in one header, and in another a secret, by which it is told from all other clients of the
 * admin port. A request that has a part of this, or has it twice, is an ApiError (400, 403): it may
 * be forged, or the proxy may pass on headers of its clients.
 */

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { isUserName, USER_NAME_RULE } from '../../auth/users.ts';
import type { DashboardProxy } from '../../config/dashboard-proxy.ts';
import { formatValue } from '../../core/describe.ts';
import { ApiError } from '../../core/errors.ts';

const SECRET_HEADER = 'X-Weir-Proxy-Secret';

export class SignInProxy {
  readonly #userHeader: string;
  readonly #secretDigest: Buffer;

  constructor({ userHeader, secret }: Pick<DashboardProxy, 'userHeader' | 'secret'>) {
    this.#userHeader = userHeader;
    this.#secretDigest = digestOf(secret);
  }

  /**
   * @returns the user whom the proxy has signed in; undefined for a request that does not come
   *   through the proxy
   * @throws ApiError (400, 403)
   */
  userOf(req: IncomingMessage): string | undefined {
    const secrets = valuesOf(req, SECRET_HEADER);
    const users = valuesOf(req, this.#userHeader);
    if (secrets.length === 0 && users.length === 0) return undefined;
    const secret = onlyValue(SECRET_HEADER, secrets, `${this.#userHeader} requires it`);
    if (!timingSafeEqual(digestOf(secret), this.#secretDigest)) {
      throw new ApiError(
        'FORBIDDEN',
        `the header ${SECRET_HEADER} must have the secret in the file of ` +
          'WEIR_DASHBOARD_PROXY_SECRET_FILE; it has another value',
      );
    }
    const user = onlyValue(this.#userHeader, users, 'the proxy has signed in no user');
    if (isUserName(user)) return user;
    throw new ApiError(
      'BAD_REQUEST',
      `the header ${this.#userHeader} must be ${USER_NAME_RULE}; got ${formatValue(user)}`,
    );
  }
}

/** Node joins several values into one, but not in `rawHeaders`. */
function valuesOf({ rawHeaders }: IncomingMessage, header: string): string[] {
  const name = header.toLowerCase();
  return rawHeaders.filter((_, i) => i % 2 === 1 && rawHeaders[i - 1].toLowerCase() === name);
}

function onlyValue(header: string, values: readonly string[], without: string): string {
  if (values.length === 1) return values[0];
  if (values.length === 0) {
    throw new ApiError('FORBIDDEN', `the header ${header} is missing: ${without}`);
  }
  throw new ApiError('BAD_REQUEST', `the header ${header} must occur once; got several`);
}

/** Digests have one length, so that the comparison does not reveal that of the secret. */
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text, 'latin1').digest();
}
