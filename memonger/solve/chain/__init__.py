"""Plans of chains: segments between narrow places, and checkpoints chosen by a dynamic program.

Most networks are chains of blocks. :mod:`memonger.solve.chain.segments` cuts a step where little
crosses, :mod:`memonger.solve.chain.tradeoffs` finds what each segment can trade, and
:mod:`memonger.solve.chain.program` puts the best checkpoints together (Beaumont et al. 2019, Zhao
et al. 2023). Seconds give what long searches find at deep cuts; native searches go on from there.
"""
