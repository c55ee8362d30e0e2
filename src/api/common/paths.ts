/** The paths of the port for checks that are not those of an operation of the API. */

/** Gateway checks. The path of the client's request may follow the namespace. */
export const CHECK_PATH = '/v1/check/';
/** For nginx, which takes no 429 from here: a denial is a 403. No path follows the namespace. */
export const AUTH_REQUEST_PATH = '/v1/auth-request/';

/** The description of the API, an OpenAPI document. */
export const OPENAPI_PATH = '/openapi.json';
/** The readable description of the API. Its style and icon are below it. */
export const REFERENCE_PATH = '/docs';
/** What it says about keys. */
export const KEYS_DOCS_PATH = '/docs#keys-and-permissions';
/** One page for each error code. */
export const ERROR_PAGES_PATH = '/docs/errors/';

/** The base URL in the files of the documentation. A server replaces it by its own. */
export const EXAMPLE_BASE_URL = 'http://127.0.0.1:7070';
