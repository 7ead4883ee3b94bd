//! A provider with a clock and a counter around it. It adds nothing to what the provider does.

use std::sync::Arc;

use neap_core::NodeId;
use neap_providers::{Answer, Error, Found, NodeOrder, Provider};

use crate::clock::Stopwatch;
use crate::handle::Inner;
use crate::trace::SpanKind;

#[derive(Debug)]
pub(crate) struct Measured {
    pub provider: Arc<dyn Provider>,
    pub inner: Arc<Inner>,
}

impl Measured {
    async fn timed<T>(
        &self,
        call: &'static str,
        node: Option<NodeId>,
        asked: Answer<'_, T>,
    ) -> Result<T, Error> {
        let span = self.inner.tracer.begin();
        let watch = Stopwatch::start();
        let answer = asked.await;
        self.inner.metrics.provider_called(call, watch.elapsed_us(), answer.is_err());
        if let (Some(span), Some(node)) = (span, node) {
            let attributes = vec![("neap.node", format!("n-{node}").as_str().into())];
            let error = answer.as_ref().err().map(Error::to_string);
            self.inner.tracer.end(&span, &format!("node.{call}"), SpanKind::Client, attributes, error);
        }
        answer
    }
}

impl Provider for Measured {
    fn create(&self, order: NodeOrder) -> Answer<'_, ()> {
        let node = order.node;
        Box::pin(self.timed("create", Some(node), self.provider.create(order)))
    }

    fn remove(&self, node: NodeId, reason: Arc<str>) -> Answer<'_, ()> {
        Box::pin(self.timed("remove", Some(node), self.provider.remove(node, reason)))
    }

    fn list(&self) -> Answer<'_, Vec<Found>> {
        Box::pin(self.timed("list", None, self.provider.list()))
    }
}
