"""Train a LightningModule on the backend `ctk`: `ctk run examples/ecosystem/with_lightning.py`."""

import sys

import lightning as L
import torch
from planted import options
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        rows, wanted = batch
        loss = (self(rows) - wanted).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    L.seed_everything(0)
    data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = torch.compile(Regression(), backend="ctk", options=options(sys.argv))
    trainer.fit(module, DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
