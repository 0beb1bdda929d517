"""A real Nova on loopback: API, conductor, scheduler and a compute service with the fake virt driver, with Placement.

They come up through Nova's own fixtures of functional tests, in one process. Glance and Neutron are the stubs of those
fixtures; Keystone is the few lines here, which Nova's fixtures leave out as well: a token, a catalogue, and the headers
that its middleware would set. Prints `serves PORT` when it does.

Arguments: the password that Keystone accepts, and `cores=N` for the quota of cores.
"""
import json
import os
import sys
import unittest
from wsgiref import simple_server

# Nova's tests end after this time, and read these when they are imported.
os.environ.pop('OS_TEST_TIMEOUT', None)
os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')

from nova.tests.functional import integrated_helpers  # noqa: E402

PASSWORD = sys.argv[1]
CORES = int(dict(word.split('=') for word in sys.argv[2:]).get('cores', 20))
TOKEN = 'a-token'


class Quiet(simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Cloud(integrated_helpers._IntegratedTestBase):
    """Not a test: its `setUp` starts the services."""

    api_major_version = 'v2.1'
    CAST_AS_CALL = False

    def _setup_services(self):
        self.flags(cores=CORES, group='quota')
        self.flags(api_paste_config=os.path.join(sys.prefix, 'etc/nova/api-paste.ini'), group='wsgi')
        super()._setup_services()

    def serve(self):
        self.nova = self.api_fixture.app()
        self.seen = []
        server = simple_server.make_server('127.0.0.1', 0, self.answer, handler_class=Quiet)
        self.base = f'http://127.0.0.1:{server.server_port}'
        print(f'serves {server.server_port}', flush=True)
        server.serve_forever()

    def answer(self, environ, start):
        path = environ['PATH_INFO']
        if path == '/identity/v3/auth/tokens':
            return self.token(environ, start)
        if environ.get('HTTP_X_AUTH_TOKEN') != TOKEN:
            return reply(start, '401 Unauthorized', {})
        if path == '/image/v2/images':
            images = [{key: image[key] for key in ('id', 'name', 'status')} for image in self.glance.images.values()]
            return reply(start, '200 OK', {'images': images})
        if path.startswith('/network/v2.0/'):
            return reply(start, '200 OK', self.network(path.rsplit('/', 1)[1]))
        # What the middleware of Keystone tells Nova.
        environ['HTTP_X_AUTH_USER'] = 'fake'
        environ['HTTP_X_AUTH_PROJECT_ID'] = self.api_fixture.project_id
        environ['HTTP_X_USER_ID'] = 'fake'
        environ['HTTP_X_PROJECT_ID'] = self.api_fixture.project_id
        environ['HTTP_X_ROLES'] = 'reader,member'
        environ['HTTP_X_ROLE'] = 'reader,member'
        return self.nova(environ, start)

    def token(self, environ, start):
        asked = json.loads(environ['wsgi.input'].read(int(environ['CONTENT_LENGTH'])))
        user = asked['auth']['identity']['password']['user']
        if user['password'] != PASSWORD:
            return reply(start, '401 Unauthorized', {'error': {'message': 'no'}})

        def service(kind, path):
            return {'type': kind, 'endpoints': [
                {'interface': 'public', 'region_id': 'one', 'url': f'{self.base}{path}'}]}

        catalog = [service('compute', '/v2.1'), service('image', '/image'), service('network', '/network')]
        return reply(start, '201 Created', {'token': {'catalog': catalog}}, [('X-Subject-Token', TOKEN)])

    def network(self, name):
        if name == 'networks':
            return {'networks': [{**self.neutron.network_1, 'router:external': False}]}
        return {name: []}


def reply(start, status, body, headers=()):
    start(status, [('Content-Type', 'application/json'), *headers])
    return [json.dumps(body).encode()]


result = unittest.TestResult()
Cloud('serve').run(result)
sys.exit('\n'.join(text for _, text in result.errors + result.failures))
